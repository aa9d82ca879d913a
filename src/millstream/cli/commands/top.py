"""`millstream top`: a live view of stream tables, capture, refreshes and the service."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from millstream.cli.entry_points import Doors
from millstream.cli.options import AsJson, Dsn
from millstream.cli.output import age, clock, coloured, milliseconds, number, out, print_json, table

if TYPE_CHECKING:
    from millstream.service.monitoring.overview import Overview, Row

EXAMPLE = "millstream top --once"

TABLES = (
    "stream table",
    "status",
    "#age of data",
    "schedule",
    "#rows",
    "last action",
    "reason",
    "#errors",
)
SOURCES = ("source", "captured", "#behind", "decoder", "note")
REFRESHES = ("at", "stream table", "action", "status", "#took", "#read", "#changed")
MODES = {"TRIGGER": "by triggers", "TRANSITIONING": "moving to WAL", "WAL": "from WAL"}


def run(
    ctx: typer.Context,
    dsn: Dsn,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two frames.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Watch stream tables, their capture, refreshes and the service, until Ctrl-C.

    Uses only the SQL functions for monitoring, so a member of millstream_reader may use it. Prints
    one frame if the output is no terminal, and one document with --json.
    """
    doors: Doors = ctx.obj
    with doors.overviews(dsn) as look:
        if as_json:
            print_json(look())
        elif once or not sys.stdout.isatty():
            out().print(screen(look()))
        else:
            _watch(look, interval)


# Any: a function of the service, which is imported late.
def _watch(look: Any, interval: float) -> None:
    try:
        with Live(screen(look()), console=out(), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(screen(look()), refresh=True)
    except KeyboardInterrupt:
        return


def screen(overview: Overview) -> RenderableType:
    """Return the whole screen as one object that rich can print."""
    parts: list[RenderableType] = [_head(overview)]
    parts.append(table("", TABLES, map(_stream_table, overview.stream_tables)))
    if overview.sources:
        parts.append(table("Capture", SOURCES, map(_source, overview.sources)))
    if overview.refreshes:
        parts.append(table("Refreshes", REFRESHES, map(_refresh, overview.refreshes)))
    return Group(*parts, *map(_check, overview.checks))


def _head(overview: Overview) -> Text:
    leader = next(
        (one for one in overview.services if one["role"] == "LEADER" and one["alive"]), None
    )
    standbys = sum(one["role"] == "STANDBY" and one["alive"] for one in overview.services)
    told = f"service: process {leader['pid']} on {leader['host']}" if leader else "no service runs"
    stale = sum(one["is_stale"] for one in overview.stream_tables)
    return Text.assemble(
        (overview.database, "bold cyan"), f"  {clock(overview.at)}  ", (told, "green" if leader else "yellow"),
        f", {standbys} standby  " if leader else "  ",
        f"{number(len(overview.stream_tables))} stream tables, ",
        (f"{number(stale)} stale", "red" if stale else "green"),
        *(_slot(one) for one in overview.slots),
    )  # fmt: skip


def _slot(one: Row) -> tuple[str, str]:
    lag = f"{(one['confirmed_lag_bytes'] or 0) / (1 << 20):.1f}MB behind"
    return f"  slot {one['decoder_status']}, {lag}, {number(one['reconnects'])} reconnects", "dim"


def _stream_table(one: Row) -> tuple[str | Text, ...]:
    seconds = one["staleness"].total_seconds() if one["staleness"] is not None else None
    errors = " ".join(part for part in (number(one["errors"]), one["error_code"]) if part)
    return (
        one["stream_table"], coloured(one["status"]), Text(age(seconds), style="red" if one["is_stale"] else ""),
        one["schedule"], number(one["rows"]), coloured(one["last_action"]), one["last_reason"] or "-",
        Text(errors, style="red" if one["errors"] else ""),
    )  # fmt: skip


def _source(one: Row) -> tuple[str | Text, ...]:
    behind = "-" if one["slot_lag_seconds"] is None else age(float(one["slot_lag_seconds"]))
    note = Text(one["alert"], style="red") if one["alert"] else one["reason"] or ""
    return one["source"], MODES[one["cdc_mode"]], behind, one["decoder_status"] or "-", note


def _refresh(one: Row) -> tuple[str | Text, ...]:
    changed = one["rows_inserted"] + one["rows_updated"] + one["rows_deleted"]
    took = milliseconds(float(one["duration_ms"]) if one["duration_ms"] is not None else None)
    told = coloured((one["error_code"] and f"{one['status']} {one['error_code']}") or one["status"])
    return (
        clock(one["started_at"]), one["stream_table"], coloured(one["action"]), told, took,
        number(one["rows_read"]), number(changed),
    )  # fmt: skip


def _check(one: Row) -> Text:
    style = "red" if one["status"] == "ERROR" else "yellow"
    return Text.assemble(
        (f"{one['status']} {one['check_name']}: ", style),
        one["detail"],
        (f" {one['hint'] or ''}", "dim"),
    )
