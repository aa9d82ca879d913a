"""`millstream doctor`: check the requirements of Millstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from millstream.cli.entry_points import Doors
from millstream.cli.exit_codes import Exit
from millstream.cli.options import AsJson
from millstream.cli.output import out, print_json, table
from millstream.cli.progress import Waiting

if TYPE_CHECKING:
    from millstream.service.monitoring.doctor import Check

EXAMPLE = "millstream doctor"

SIGNS = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("-", "dim")}


def run(
    ctx: typer.Context,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--dsn",
            envvar="MILLSTREAM_DSN",
            help="The database. Without it, only this machine is checked.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check Python, Java, Spark, the server, the role's privileges and the capture triggers.

    Ends with exit code 1 if something is wrong; each fault has a hint.
    """
    doors: Doors = ctx.obj
    with Waiting("looking round"):
        checks = doors.doctor(dsn)
    show(checks, as_json=as_json)


def show(checks: Sequence[Check], *, as_json: bool) -> None:
    """Print the checks; end with exit code 1 if one has failed."""
    if as_json:
        print_json(checks)
    else:
        out().print(
            table(
                "", ("", "what", "found", "why, or what to do"), [_row(check) for check in checks]
            )
        )
    if any(check.ok is False for check in checks):
        raise typer.Exit(Exit.CHECK_FAILED)


def _row(check: Check) -> tuple[str | Text, ...]:
    return Text(*SIGNS[check.ok]), check.name, check.found, check.hint
