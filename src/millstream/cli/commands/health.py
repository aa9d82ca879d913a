"""`millstream health`: is every stream table fresh, and how is each source captured?"""

from __future__ import annotations

import typer

from millstream.cli.commands.doctor import show
from millstream.cli.entry_points import opened
from millstream.cli.options import AsJson, Dsn

EXAMPLE = "millstream health"


def run(ctx: typer.Context, dsn: Dsn, as_json: AsJson = False) -> None:
    """Show whether each stream table is fresh, how each source is captured and why, and how far WAL
    capture lags.

    Ends with exit code 1 if something is wrong; each fault has a hint.
    """
    with opened(ctx, dsn, "looking round") as client:
        checks = client.health()
    show(checks, as_json=as_json)
