"""`millstream drop`: drop a stream table."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.entry_points import opened, served
from millstream.cli.options import AsJson, Direct, Dsn, Name
from millstream.cli.output import out, print_json

EXAMPLE = "millstream drop totals"


def run(
    ctx: typer.Context,
    dsn: Dsn,
    name: Name,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also drop the objects that depend on it.")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Keep its table, as an ordinary table.")
    ] = False,
    direct: Direct = False,
    as_json: AsJson = False,
) -> None:
    """Drop a stream table, its state, and the capture of sources that no other stream table reads."""
    if forget:
        with opened(ctx, dsn, f"forgetting {name}") as client:
            client.drop_stream_table(name, cascade=cascade, forget=True)
    else:
        with served(ctx, dsn, f"dropping {name}", direct=direct) as requested:
            requested.drop_stream_table(name, cascade=cascade)
    if as_json:
        print_json({"name": name, "dropped": True})
    else:
        out().print(f"{name} is dropped.")
