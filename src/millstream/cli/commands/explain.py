"""`millstream explain`: how a stream table is maintained."""

from __future__ import annotations

import typer

from millstream.cli.entry_points import opened
from millstream.cli.options import AsJson, Dsn, Name
from millstream.cli.output import print_json

EXAMPLE = "millstream explain totals"


def run(ctx: typer.Context, dsn: Dsn, name: Name, as_json: AsJson = False) -> None:
    """Show how a stream table is maintained: blocks, demand, access paths, Spark SQL, last numbers."""
    with opened(ctx, dsn, f"explaining {name}") as client:
        explanation = client.explain(name)
    if as_json:
        print_json(explanation)
    else:
        typer.echo(str(explanation))
