"""The demo's screen: the shop at the top, its stream tables below, the rows of one of them.

`screen` is a function of the board alone, so that it can be tested. `plain` prints the same in a
few lines, for logs and pipes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from millstream.cli.demo.board import Alteration, Board, BoardLine, Refresh
from millstream.cli.demo.story import ALTERED_READER, SCHEDULE
from millstream.cli.output import age, coloured, milliseconds, number

BARS = "▁▂▃▄▅▆▇█"


def screen(board: Board) -> RenderableType:
    """Return the whole screen as one object that rich can print."""
    parts: list[RenderableType] = [_shop(board), _stream_tables(board), _peek(board)]
    if board.alteration is not None:
        parts.append(_alteration(board.alteration, board.lines[ALTERED_READER]))
    if board.trouble:
        parts.append(Text(board.trouble, style="red"))
    return Group(*parts, Text("Ctrl-C ends the demo with the proof.", style="dim"))


def plain(board: Board) -> str:
    """Return the screen as plain text: a line for the shop and a line for each stream table."""
    count = board.traffic()
    shop = f"{board.seconds:5.1f} s  {number(count.committed)} transactions, {number(count.rows)} rows changed"
    captured = ", ".join(f"{name} {WAYS[mode][0]}" for name, mode in board.modes.items())
    told = [f"         captured: {captured}"] if captured else []
    lines = [f"         {_plain(line)}" for line in board.lines.values()]
    return "\n".join([shop, *told, *lines, board.trouble]).rstrip()


def _plain(line: BoardLine) -> str:
    last = line.last
    if last is None:
        return f"{line.chapter.name:<16} not refreshed yet"
    return (
        f"{line.chapter.name:<16} refresh {number(line.refreshes):>3}: {last.action:<12} "
        f"{number(last.rows_read):>6} rows read, {_applied(last):>12} applied, "
        f"{milliseconds(last.duration_ms):>7}; stale by {age(line.staleness)}"
    )


def followed(alteration: Alteration, line: BoardLine) -> str:
    """Describe in one sentence how the service followed an alteration."""
    if alteration.followed_after is None or line.last is None:
        return "The service has not followed it yet."
    return f"{line.chapter.name} has followed within {age(alteration.followed_after)}."


def _alteration(alteration: Alteration, line: BoardLine) -> Text:
    style = "green" if alteration.is_followed else "yellow"
    return Text.assemble((alteration.statement, "bold"), "\n", (followed(alteration, line), style))


def sparkline(values: Iterable[float]) -> str:
    """Print the values as a row of bars, the tallest for the largest.

    >>> sparkline([1, 2, 4])
    '▂▄█'
    """
    known = list(values)
    top = max(known, default=0.0) or 1.0
    return "".join(BARS[max(0, round(value / top * len(BARS)) - 1)] for value in known)


def _shop(board: Board) -> Panel:
    count = board.traffic()
    ends = "" if board.length is None else f" of {board.length:.0f}"
    text = Text.assemble(
        *_captured(board), "\n",
        (number(count.committed), "bold cyan"), " transactions, ",
        (number(count.rolled_back), "bold cyan"), " rolled back, ",
        (number(count.rows), "bold cyan"), " rows changed in ",
        (f"{board.seconds:.0f}{ends} s", "bold cyan"),
    )  # fmt: skip
    return Panel(text, title="the shop", title_align="left", border_style="cyan")


WAYS = {
    "TRIGGER": ("by trigger", "yellow"),
    "TRANSITIONING": ("moving to WAL", "magenta"),
    "WAL": ("from WAL", "green"),
}


def _captured(board: Board) -> list[str | tuple[str, str]]:
    """Print the tables that the application writes to, and how each is captured: first by triggers,
    then from WAL.
    """
    parts: list[str | tuple[str, str]] = ["The application writes to "]
    for name in board.sizes:
        way, style = WAYS.get(board.modes.get(name, ""), ("", ""))
        parts += [name, (f" {way}" if way else "", style), ", "]
    return [*parts[:-1], "."]


def _stream_tables(board: Board) -> Panel:
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for heading in ("stream table", "action", "done", "rows read", "applied", "time", "stale"):
        side: Literal["left", "right"] = (
            "left" if heading in ("stream table", "action") else "right"
        )
        table.add_column(heading, justify=side, no_wrap=True)
    for line in board.lines.values():
        table.add_row(*_row(board, line))
    return Panel(
        table,
        title=f"the service keeps three views (schedule {SCHEDULE})",
        title_align="left",
        border_style="green",
    )


def _row(board: Board, line: BoardLine) -> tuple[RenderableType, ...]:
    last = line.last
    if last is None:
        return Text(line.chapter.name, style="bold"), Text("...", style="dim"), "", "", "", "", ""
    return (
        Text.assemble((line.chapter.name, "bold"), "\n", (sparkline(line.times), "green")),
        coloured(last.action),
        number(line.refreshes),
        Text.assemble(number(last.rows_read), (f"\nof {number(board.source_rows(line))}", "dim")),
        _applied(last),
        milliseconds(last.duration_ms),
        age(line.staleness),
    )


def _applied(refresh: Refresh) -> str:
    return f"+{refresh.rows_inserted} ~{refresh.rows_updated} -{refresh.rows_deleted}"


def _peek(board: Board) -> Panel:
    table = Table(box=None, header_style="bold", padding=(0, 2))
    for heading in ("region", "lines", "revenue"):
        table.add_column(heading, justify="left" if heading == "region" else "right")
    for region, lines, revenue in board.peek:
        table.add_row(region, number(lines), f"{revenue:,.2f}")
    title = "SELECT * FROM sales_by_region"
    return Panel(table, title=title, title_align="left", border_style="blue")
