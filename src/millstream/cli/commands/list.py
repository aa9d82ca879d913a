"""`millstream list`: the stream tables of a database."""

from __future__ import annotations

import typer

from millstream.cli.entry_points import opened
from millstream.cli.options import AsJson, Dsn
from millstream.cli.output import coloured, number, out, print_json, table

EXAMPLE = "millstream list"


def run(ctx: typer.Context, dsn: Dsn, as_json: AsJson = False) -> None:
    """List the stream tables: name, status, mode, schedule, size."""
    with opened(ctx, dsn, "reading the catalog") as client:
        every = client.status()
    if as_json:
        print_json([
            {"schema": t.schema, "name": t.name, "status": t.status, "refresh_mode": t.refresh_mode,
             "schedule": t.schedule, "rows": t.rows}
            for t in every
        ])  # fmt: skip
    elif not every:
        out().print("There are no stream tables yet. Create one with: millstream create --help")
    else:
        rows = [
            (t.schema, t.name, coloured(t.status), t.refresh_mode, t.schedule, number(t.rows))
            for t in every
        ]
        out().print(
            table("", ("schema", "name", "status", "mode", "schedule", "#rows (about)"), rows)
        )
