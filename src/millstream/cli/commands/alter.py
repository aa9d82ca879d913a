"""`millstream alter`: change a stream table, suspend it, resume it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.cli.commands.create import Capture, Mode, read_query
from millstream.cli.commands.refresh import summary
from millstream.cli.entry_points import served
from millstream.cli.options import AsJson, Direct, Dsn, Name, SessionSettings, settings_of
from millstream.cli.output import out, print_json

EXAMPLE = "millstream alter totals --schedule 5m --status active"


class Status(StrEnum):
    """The statuses that a user can set."""

    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"


def run(
    ctx: typer.Context,
    dsn: Dsn,
    name: Name,
    schedule: Annotated[
        str | None,
        typer.Option(
            help=(
                "A duration (500ms, 1s, 5m, 1h), a cron expression, continuous, calculated or manual."
            )
        ),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            "--refresh-mode",
            "--mode",
            case_sensitive=False,
            metavar="MODE",
            help="AUTO, DIFFERENTIAL or FULL.",
        ),
    ] = None,
    status: Annotated[
        Status | None,
        typer.Option(
            case_sensitive=False,
            metavar="STATUS",
            help=(
                "SUSPENDED: do not refresh it by schedule. ACTIVE: resume, and reset its errors."
            ),
        ),
    ] = None,
    cdc_mode: Annotated[
        Capture | None,
        typer.Option(case_sensitive=False, metavar="MODE", help="trigger, auto or wal."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Another defining query, or - to read it from stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the query from this file.")
    ] = None,
    settings: SessionSettings = None,
    direct: Direct = False,
    as_json: AsJson = False,
) -> None:
    """Change the schedule, the mode, the query or the status of a stream table, in one transaction.

    A stream table that was suspended, by you or after errors in a row, is resumed with --status
    active.
    """
    changes: dict[str, Any] = {
        "schedule": schedule,
        "refresh_mode": mode.value if mode else None,
        "status": status.value if status else None,
        "cdc_mode": cdc_mode.value if cdc_mode else None,
        "query": read_query(query, file) if query is not None or file is not None else None,
        "settings": settings_of(settings),
    }
    given = {option: value for option, value in changes.items() if value is not None}
    if not given:
        raise typer.BadParameter(
            "specify what to change, for example --schedule 5m or --status suspended"
        )
    with served(ctx, dsn, f"altering {name}", direct=direct) as client:
        report = client.alter_stream_table(name, **given)
    if as_json:
        print_json({"name": name, "altered": given, "report": report})
    elif report is None:
        out().print(f"{name} is altered.", markup=False)
    else:
        out().print(f"{name} is altered. {summary(report)}", markup=False)
