"""`millstream history`: the last refreshes of a stream table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from millstream.cli.entry_points import opened
from millstream.cli.options import AsJson, Dsn, Name
from millstream.cli.output import coloured, milliseconds, moment, number, out, print_json, table

if TYPE_CHECKING:
    from millstream.catalog.history import HistoryEntry
    from millstream.service.monitoring.status import StreamTableStatus

EXAMPLE = "millstream history totals -n 5"

COLUMNS = (
    "started",
    "action",
    "reason",
    "status",
    "by",
    "#read",
    "#inserted",
    "#updated",
    "#deleted",
    "#jobs",
    "#time",
)


def run(
    ctx: typer.Context,
    dsn: Dsn,
    name: Name,
    count: Annotated[
        int, typer.Option("-n", "--count", min=1, help="Number of refreshes, latest first.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the last refreshes: what was done and why, what it read, what it changed, how long it
    took.
    """
    with opened(ctx, dsn, "reading the history") as client:
        entries = client.history(name, n=count)
        idle = 0 if as_json else _without_changes(client.status(), name)
    if as_json:
        print_json(entries)
    else:
        out().print(table("", COLUMNS, [_row(entry) for entry in entries]))
        if idle:
            out().print(
                f"{number(idle)} refreshes by schedule found no change: these are counted, and not listed."
            )


def _without_changes(tables: Sequence[StreamTableStatus], name: str) -> int:
    """Return how many refreshes of a stream table had no changes and are only counted."""
    return sum(
        one.no_data_refreshes for one in tables if name in (one.name, f"{one.schema}.{one.name}")
    )


def _row(entry: HistoryEntry) -> tuple[str | Text, ...]:
    took = (
        None
        if entry.finished_at is None
        else (entry.finished_at - entry.started_at).total_seconds() * 1000
    )
    return (
        moment(entry.started_at),
        coloured(entry.action),
        entry.reason or "-",
        coloured(entry.status),
        entry.initiated_by,
        number(entry.rows_read),
        number(entry.rows_inserted),
        number(entry.rows_updated),
        number(entry.rows_deleted),
        number(entry.spark_jobs),
        milliseconds(took),
    )
