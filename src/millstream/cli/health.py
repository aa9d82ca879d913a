"""`millstream health`: does everything keep up, and how is each source captured?"""

from __future__ import annotations

import typer

from millstream.cli.doctor import row
from millstream.cli.doors import opened
from millstream.cli.exits import Exit
from millstream.cli.options import AsJson, Dsn
from millstream.cli.output import out, print_json, table

EXAMPLE = "millstream health"


def run(ctx: typer.Context, dsn: Dsn, as_json: AsJson = False) -> None:
    """Show whether each stream table keeps up, how each source is captured and why, and how far the log is behind.

    Ends with exit code 1 if something is wrong; what is wrong comes with what to do.
    """
    with opened(ctx, dsn, "looking round") as client:
        checks = client.health()
    if as_json:
        print_json(checks)
    else:
        out().print(table("", ("", "what", "found", "why, or what to do"), [row(check) for check in checks]))
    if any(check.ok is False for check in checks):
        raise typer.Exit(Exit.CHECK_FAILED)
