"""`millstream status`: how fresh each stream table is, and what its last refresh did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from millstream.cli.entry_points import opened
from millstream.cli.options import AsJson, Dsn
from millstream.cli.output import age, coloured, err, moment, number, out, print_json, table
from millstream.errors import NoSuchStreamTable

if TYPE_CHECKING:
    from millstream.service.monitoring.status import StreamTableStatus

EXAMPLE = "millstream status totals"

COLUMNS = (
    "stream table",
    "status",
    "#age of data",
    "#changes waiting",
    "last action",
    "reason",
    "#errors",
)


def run(
    ctx: typer.Context,
    dsn: Dsn,
    name: Annotated[str | None, typer.Argument(help="Only this stream table.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how fresh each stream table is, what waits for it, and what its last refresh did."""
    with opened(ctx, dsn, "reading the catalog") as client:
        every = _chosen(client.status(), name)
    if as_json:
        print_json(every)
        return
    out().print(table("", COLUMNS, [_row(one) for one in every]))
    for line in dict.fromkeys(line for one in every for line in _capture(one)):
        out().print(line, style="dim", markup=False)
    for one in every:
        if one.last_error:
            err().print(f"{one.name}: {one.last_error}", style="red", markup=False)
        if one.next_try_at:
            trouble = (
                ""
                if one.last_error
                else f": {one.last_transient_error}"
                if one.last_transient_error
                else ""
            )
            line = (
                f"{one.name}: not tried again by schedule before {moment(one.next_try_at)}{trouble}"
            )
            err().print(line, style="yellow", markup=False)
        for notice in one.notices:
            err().print(f"{one.name}: {notice}", style="yellow", markup=False)


def _chosen(every: list[StreamTableStatus], name: str | None) -> list[StreamTableStatus]:
    """Return all of them, or those with this name; raise an error if there is none."""
    if name is None:
        return every
    chosen = [one for one in every if name in (one.name, f"{one.schema}.{one.name}")]
    if not chosen:
        raise NoSuchStreamTable.named(name)
    return chosen


def _capture(one: StreamTableStatus) -> list[str]:
    """Describe the capture of each source for which a reason is recorded."""
    return [
        f"{source.name}: {source.cdc_mode}. {source.reason}"
        for source in one.sources
        if source.reason
    ]


def _row(one: StreamTableStatus) -> tuple[str | Text, ...]:
    return (
        f"{one.schema}.{one.name}",
        coloured(one.status),
        age(one.staleness_seconds),
        number(one.pending_changes),
        coloured(one.last_action),
        one.last_reason or "-",
        number(one.consecutive_errors),
    )
