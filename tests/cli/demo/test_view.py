"""The demo's screen, and its plain lines, as functions of the board."""

from __future__ import annotations

from millstream.bundled.shop import Count
from millstream.cli.demo.board import Alteration, Board
from millstream.cli.demo.story import ALTERATION, CHAPTERS
from millstream.cli.demo.view import plain, sparkline

from .conftest import SIZES, filled_board, refresh, shown


def test_the_screen_shows_traffic_action_changes_rows_read_time_and_staleness() -> None:
    text = shown(filled_board())
    for part in (
        "1,234",
        "56",
        "7,890",
        "7 of 20 s",
        "DIFFERENTIAL",
        "+1 ~2 -3",
        "87 ms",
        "north",
        "345.68",
        "0.4 s",
    ):
        assert part in text
    assert all(chapter.name in text for chapter in CHAPTERS)


def test_the_screen_fits_a_small_terminal() -> None:
    board = filled_board()
    for _ in range(30):
        last = refresh(
            action="REINITIALIZE",
            rows_read=12345,
            rows_inserted=12,
            rows_updated=34,
            duration_ms=1234.5,
        )
        board.lines["sales_by_region"].note(last)
    board.alteration = Alteration(ALTERATION, at=5.0, kept="", last_id=0, followed_after=1.0)
    lines = shown(board, width=80).splitlines()
    assert len(lines) <= 24
    assert not any("…" in line for line in lines)


def test_before_the_first_refresh_the_screen_stands_too() -> None:
    board = Board(Count, SIZES)
    assert "open_orders" in shown(board)
    assert "not refreshed yet" in plain(board)


def test_the_plain_lines_name_every_stream_table() -> None:
    lines = plain(filled_board()).splitlines()
    assert lines[0] == "  7.0 s  1,234 transactions, 7,890 rows changed"
    assert [line.split()[0] for line in lines[1:]] == [chapter.name for chapter in CHAPTERS]
    assert lines[1].endswith(
        "refresh   1: DIFFERENTIAL  1,234 rows read,     +1 ~2 -3 applied,   87 ms; stale by 0.4 s"
    )


def test_a_sparkline_is_as_tall_as_its_values() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([1, 8]) == "▁█"


def test_how_each_source_is_captured_is_shown() -> None:
    board = filled_board()
    board.modes = {"orders": "WAL", "customers": "TRIGGER", "products": "TRANSITIONING"}
    assert "orders from WAL" in " ".join(shown(board).split())
    assert "captured: orders from WAL, customers by trigger, products moving to WAL" in plain(board)


def test_the_trouble_of_a_stream_table_is_shown() -> None:
    board = filled_board()
    board.trouble = "open_orders: it broke [MS402]"
    assert board.trouble in shown(board)
    assert plain(board).splitlines()[-1] == board.trouble
