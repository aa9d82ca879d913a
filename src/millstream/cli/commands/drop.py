"""`millstream drop`: drop a stream table."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.entry_points import opened
from millstream.cli.options import AsJson, Dsn, Name
from millstream.cli.output import out, print_json

EXAMPLE = "millstream drop totals"


def run(
    ctx: typer.Context,
    dsn: Dsn,
    name: Name,
    cascade: Annotated[bool, typer.Option("--cascade", help="Drop what depends on it, too.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Leave its table alone, as a table like any other.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop a stream table, its state, and the capture of sources that nobody else reads."""
    with opened(ctx, dsn, f"dropping {name}") as client:
        client.drop_stream_table(name, cascade=cascade, forget=forget)
    if as_json:
        print_json({"name": name, "dropped": True})
    else:
        out().print(f"{name} is dropped.")
