"""The demo's board and screen, as functions of reports."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from millstream.bundled.shop import Count
from millstream.cli.demo.board import Board
from millstream.cli.demo.loop import MODES, PEEK, keep_fresh
from millstream.cli.demo.story import CHAPTERS
from millstream.cli.demo.view import plain, screen, sparkline

from .conftest import AT, report, status

SIZES = {"customers": 10, "products": 20, "orders": 300, "order_lines": 4000}


def filled_board() -> Board:
    """A board after a refresh of each stream table."""
    board = Board(lambda: Count(committed=1234, rolled_back=56, rows=7890), SIZES, length=20)
    for chapter in CHAPTERS:
        board.note(report(name=f"public.{chapter.name}"))
    board.peek = [("north", 12, Decimal("345.678"))]
    board.seconds = 7.0
    return board


def shown(board: Board, width: int = 100) -> str:
    """The screen as text."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(screen(board))
    return capture.get()


def test_the_screen_shows_traffic_action_changes_rows_read_time_and_lag() -> None:
    text = shown(filled_board())
    for part in ("1,234", "56", "7,890", "7 of 20 s", "DIFFERENTIAL", "+1 ~2 -3", "87 ms", "north", "345.68", " d"):
        assert part in text
    assert all(chapter.name in text for chapter in CHAPTERS)


def test_the_screen_fits_a_small_terminal() -> None:
    board = filled_board()
    for _ in range(30):
        board.note(report(name="open_orders", rows_read=12345, rows_inserted=12, rows_updated=34, duration_ms=1234.5))
    lines = shown(board, width=80).splitlines()
    assert len(lines) <= 23
    assert not any("…" in line for line in lines)


def test_before_the_first_refresh_the_screen_stands_too() -> None:
    board = Board(Count, SIZES)
    assert "open_orders" in shown(board)
    assert "not refreshed yet" in plain(board)


def test_the_plain_lines_name_every_stream_table() -> None:
    lines = plain(filled_board()).splitlines()
    assert lines[0] == "  7.0 s  1,234 transactions, 7,890 rows changed"
    assert [line.split()[0] for line in lines[1:]] == [chapter.name for chapter in CHAPTERS]
    assert "7 changes in,  1,234 rows read,     +1 ~2 -3 applied,   87 ms" in lines[1]


def test_the_board_adds_up_changes_and_rows_read() -> None:
    board = filled_board()
    line = board.lines["sales_by_region"]
    assert (line.refreshes, line.changes, line.rows_read) == (1, 7, 1234)
    assert line.lag(AT + timedelta(seconds=2)) == 2.0
    assert board.source_rows(line) == 4310
    assert board.read_anew() == 300 + 4310 + 4020


def test_a_sparkline_is_as_tall_as_its_values() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([1, 8]) == "▁█"


def test_how_each_source_is_captured_is_shown() -> None:
    board = filled_board()
    board.modes = {"orders": "WAL", "customers": "TRIGGER", "products": "TRANSITIONING"}
    assert "orders from the log" in " ".join(shown(board).split())
    assert "captured: orders from the log, customers by trigger, products handing over" in plain(board)


def test_the_chapters_name_their_sources() -> None:
    assert all(source in SIZES for chapter in CHAPTERS for source in chapter.sources)


def test_the_trouble_of_a_stream_table_is_shown() -> None:
    board = filled_board()
    board.trouble = "open_orders: it broke [MS402]"
    assert board.trouble in shown(board)
    assert plain(board).splitlines()[-1] == board.trouble


def test_ticks_note_reports_and_trouble_and_end_with_the_length() -> None:
    client: Any = SimpleNamespace(
        tick=lambda: [report(name="open_orders")],
        status=lambda: [status(name="price_range", consecutive_errors=2, last_error="it broke"), status()],
    )
    answers = {PEEK: [("north", 1, Decimal(2))], MODES: [("orders", "WAL")]}
    reader: Any = SimpleNamespace(execute=lambda query: SimpleNamespace(fetchall=lambda: answers[query]))
    board = Board(Count, SIZES, length=1.2)
    with (console := Console(width=120)).capture() as printed:
        keep_fresh(client, reader, board, console)
    assert board.lines["open_orders"].refreshes == 3
    assert board.trouble == "price_range: it broke"
    assert board.peek == [("north", 1, Decimal(2))]
    assert board.modes == {"orders": "WAL"}
    assert printed.get() == ""


def test_ctrl_c_ends_the_loop_after_the_refresh_at_work() -> None:
    def tick() -> list[Any]:
        os.kill(os.getpid(), signal.SIGINT)
        return [report(name="open_orders")]

    before = signal.getsignal(signal.SIGINT)
    client: Any = SimpleNamespace(tick=tick, status=list)
    reader: Any = SimpleNamespace(execute=lambda _: SimpleNamespace(fetchall=list))
    board = Board(Count, SIZES)
    keep_fresh(client, reader, board, Console(width=120))
    assert board.lines["open_orders"].refreshes == 1
    assert signal.getsignal(signal.SIGINT) == before
