"""The demo's board, screen and service, as functions of what the database answers."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from rich.console import Console

from millstream.bundled.shop import Count
from millstream.cli.demo import service, watch
from millstream.cli.demo.board import Alteration, Board, Refresh
from millstream.cli.demo.sql_door import answer, ask, status_table
from millstream.cli.demo.story import ALTERATION, CHAPTERS
from millstream.cli.demo.view import plain, screen, sparkline
from millstream.errors import MillstreamError

SIZES = {"customers": 10, "products": 20, "orders": 300, "order_lines": 4000}


def refresh(id: int = 1, **changed: Any) -> Refresh:
    """A refresh, as the history shows it."""
    facts: dict[str, Any] = {
        "action": "DIFFERENTIAL", "reason": "CHANGED", "duration_ms": 87.4, "rows_read": 1234, "rows_inserted": 1,
        "rows_updated": 2, "rows_deleted": 3,
    }  # fmt: skip
    return Refresh(id, **facts | changed)


class Reader:
    """A double of a connection: answers each statement with rows, by its text; notes what is executed."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.answers = {
            watch.HISTORY: (), watch.STATUS: (), watch.PEEK: (), watch.MODES: (), watch.KEPT: [("as before",)],
        } | (answers or {})  # fmt: skip
        self.executed: list[str] = []

    def execute(self, query: str | bytes, given: tuple[Any, ...] = ()) -> Any:
        text = query if isinstance(query, str) else query.decode()
        self.executed.append(text)
        found = self.answers.get(text, ())
        rows = list(found(*given) if callable(found) else found)
        return SimpleNamespace(fetchall=lambda: rows, fetchone=lambda: rows[0] if rows else None)


def history(refreshes: dict[str, list[tuple[Any, ...]]]) -> Callable[[str, int], Iterable[tuple[Any, ...]]]:
    """The answer to the question for refreshes after the last one that was seen."""
    return lambda name, last: [row for row in refreshes.get(name, ()) if row[0] > last]


ROW = ("DIFFERENTIAL", "CHANGED", 87.4, 1234, 1, 2, 3)


def filled_board() -> Board:
    """A board after a refresh of each stream table."""
    board = Board(lambda: Count(committed=1234, rolled_back=56, rows=7890), SIZES, length=20)
    for line in board.lines.values():
        line.note(refresh())
        line.staleness = 0.42
    board.peek = [("north", 12, Decimal("345.678"))]
    board.seconds = 7.0
    return board


def shown(board: Board, width: int = 100) -> str:
    """The screen as text."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(screen(board))
    return capture.get()


def test_the_screen_shows_traffic_action_changes_rows_read_time_and_staleness() -> None:
    text = shown(filled_board())
    for part in ("1,234", "56", "7,890", "7 of 20 s", "DIFFERENTIAL", "+1 ~2 -3", "87 ms", "north", "345.68", "0.4 s"):
        assert part in text
    assert all(chapter.name in text for chapter in CHAPTERS)


def test_the_screen_fits_a_small_terminal() -> None:
    board = filled_board()
    for _ in range(30):
        last = refresh(action="REINITIALIZE", rows_read=12345, rows_inserted=12, rows_updated=34, duration_ms=1234.5)
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
        "  1 refreshes, the last: DIFFERENTIAL  1,234 rows read,     +1 ~2 -3 applied,   87 ms; stale by 0.4 s"
    )


def test_the_board_adds_up_refreshes_and_rows_read() -> None:
    board = filled_board()
    line = board.lines["sales_by_region"]
    assert (line.refreshes, line.rows_read, line.last_id) == (1, 1234, 1)
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


def test_a_look_takes_in_new_refreshes_staleness_and_trouble() -> None:
    refreshes = {"open_orders": [(4, *ROW), (7, *ROW)]}
    reader: Any = Reader(
        {
            watch.HISTORY: history(refreshes),
            watch.STATUS: [
                ("public.open_orders", 0.5, False, "a lock is held"),
                ("public.price_range", None, True, "it broke"),
            ],
            watch.PEEK: [("north", 1, Decimal(2))],
            watch.MODES: [("orders", "WAL")],
        }
    )
    board = Board(Count, SIZES)
    watch.look(reader, board)
    refreshes["open_orders"].append((9, *ROW))
    watch.look(reader, board)
    line = board.lines["open_orders"]
    assert (line.refreshes, line.last_id, line.staleness) == (3, 9, 0.5)
    assert board.trouble == "public.price_range: it broke"
    assert board.peek == [("north", 1, Decimal(2))]
    assert board.modes == {"orders": "WAL"}


def test_a_source_is_altered_once_in_the_middle_and_seen_to_be_followed() -> None:
    refreshes: dict[str, list[tuple[Any, ...]]] = {"price_range": [(1, *ROW)]}
    reader: Any = Reader({watch.HISTORY: history(refreshes), watch.MODES: [("products", "TRIGGER")]})

    def check() -> None:
        # Refreshed twice after the alteration, the second time with the query as it is then.
        if ALTERATION in reader.executed:
            refreshes["price_range"].append((len(refreshes["price_range"]) + 1, *ROW))
            reader.answers[watch.KEPT] = [("as before" if len(refreshes["price_range"]) < 3 else "SELECT p.title",)]

    board = Board(Count, SIZES, length=3.2)
    with (console := Console(width=120)).capture() as printed:
        watch.watch(reader, board, console, check)
    assert reader.executed.count(ALTERATION) == 1
    assert board.alteration is not None
    # 1.6 seconds are over then: three looks at the three stream tables, at least.
    assert reader.executed[: reader.executed.index(ALTERATION)].count(watch.MODES) >= 3
    assert board.alteration.is_followed
    out = printed.get()
    assert out.index(ALTERATION) < out.index("price_range has followed") < out.index("SELECT p.title")
    assert "triggers capture products" in out
    assert "has followed" in shown(board)


def test_a_refresh_that_kept_the_alteration_waiting_has_not_followed_it() -> None:
    refreshes: dict[str, list[tuple[Any, ...]]] = {"price_range": [(1, *ROW)]}
    reader: Any = Reader({watch.HISTORY: history(refreshes)})

    def altered() -> Iterable[tuple[Any, ...]]:
        refreshes["price_range"].append((2, *ROW))
        reader.answers[watch.KEPT] = [("SELECT p.title",)]
        return ()

    reader.answers[ALTERATION] = altered
    board, console = Board(Count, SIZES), Console(width=120)
    with console.capture():
        watch.alter(reader, board, console)
        watch.follow(reader, board, console)
        assert board.alteration is not None
        assert not board.alteration.is_followed
        refreshes["price_range"].append((3, *ROW))
        watch.look(reader, board)
        watch.follow(reader, board, console)
    assert board.alteration.is_followed


def test_an_alteration_that_nobody_has_followed_is_said() -> None:
    board = filled_board()
    board.alteration = Alteration(ALTERATION, at=5.0, kept="as before", last_id=0)
    reader: Any = Reader()
    watch.follow(reader, board, Console())
    assert not board.alteration.is_followed
    assert "The service has not followed it yet." in shown(board)


def test_ctrl_c_ends_the_watch() -> None:
    before = signal.getsignal(signal.SIGINT)

    def interrupted() -> Iterable[tuple[Any, ...]]:
        os.kill(os.getpid(), signal.SIGINT)
        return ()

    reader: Any = Reader({watch.MODES: interrupted})
    watch.watch(reader, Board(Count, SIZES), Console(width=120), lambda: None)
    assert reader.executed.count(watch.MODES) == 1
    assert signal.getsignal(signal.SIGINT) == before


def test_a_service_that_has_ended_ends_the_watch() -> None:
    def check() -> None:
        raise MillstreamError("the service has ended")

    reader: Any = Reader()
    with pytest.raises(MillstreamError, match="has ended"):
        watch.watch(reader, Board(Count, SIZES), Console(width=120), check)


# -- the SQL door --------------------------------------------------------------------------------


def test_the_statement_of_a_chapter_is_what_a_user_would_type() -> None:
    assert CHAPTERS[0].statement == (
        "SELECT millstream.create_stream_table('open_orders', $$\n"
        "    SELECT id, customer_id, status, placed_at\n    FROM orders\n    WHERE status <> 'shipped'\n"
        "$$, schedule => '500ms')"
    )


class NotDone(psycopg.Error):
    """What `wait_for` raises after its timeout."""

    sqlstate = "MS501"


def test_waiting_goes_on_while_the_service_works() -> None:
    looks: list[int] = []

    def wait(_request: int, _patience: str) -> Any:
        if len(looks) < 2:
            raise NotDone
        return [({"ok": True},)]

    reader: Any = Reader({"SELECT 1": [(12,)], "CALL millstream.wait_for(%s, %s)": wait})
    assert ask(reader, "SELECT 1") == 12
    assert answer(reader, 12, lambda: looks.append(1)) == {"ok": True}
    assert len(looks) == 2


def test_waiting_raises_the_error_of_a_request() -> None:
    def wait(_request: int, _patience: str) -> Any:
        raise psycopg.errors.SyntaxError("it is refused")

    reader: Any = Reader({"CALL millstream.wait_for(%s, %s)": wait})
    with pytest.raises(psycopg.Error, match="it is refused"):
        answer(reader, 12, lambda: None)


def test_the_status_is_shown_on_its_side() -> None:
    at = datetime(2024, 6, 1, 12, 0, 0, tzinfo=UTC)
    rows = [("public.a", True, at, timedelta(seconds=0.4), [], None), ("public.b", False, at, None, ["public.a"], 3)]
    names = ("stream_table", "is_stale", "data_timestamp", "staleness", "held_back_by", "rows")
    cursor = SimpleNamespace(description=[SimpleNamespace(name=name) for name in names], fetchall=lambda: rows)
    reader: Any = SimpleNamespace(execute=lambda _: cursor)
    with (console := Console(width=100)).capture() as printed:
        console.print(status_table(reader))
    lines = [line.rstrip() for line in printed.get().splitlines()]
    assert lines[0] == "stream_table   public.a public.b"
    assert lines[1] == "is_stale       yes      no"
    assert lines[3:] == ["staleness      0.4 s", "held_back_by            public.a", "rows                    3"]


# -- the process of the service ------------------------------------------------------------------


def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    """Have this run instead of `python -m millstream`."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_the_service_is_told_to_stop_at_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(monkeypatch, tmp_path, 'trap "echo stopped; exit 0" TERM; echo "$@"; while :; do sleep 0.05; done')
    log = tmp_path / "log"
    with service.running("postgresql://h/d", log, Console()) as at_work:
        while "run --dsn" not in at_work.last_lines():
            time.sleep(0.01)
        at_work.check()
    assert at_work.process.returncode == 0
    assert log.read_text().splitlines() == ["-m millstream run --dsn postgresql://h/d", "stopped"]


def test_a_service_that_fails_shows_the_end_of_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(monkeypatch, tmp_path, "echo 'ERROR no Java here'; exit 3")
    reader: Any = Reader({service.INSTALLED: [(False,)]})
    with (
        (console := Console(width=100)).capture() as printed,
        pytest.raises(MillstreamError, match="exit code 3"),
        service.running("postgresql://h/d", tmp_path / "log", console) as at_work,
    ):
        at_work.wait_until_running(reader)
    assert "ERROR no Java here" in printed.get()


def test_ctrl_c_ends_the_service_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(monkeypatch, tmp_path, "exec sleep 600")
    with pytest.raises(KeyboardInterrupt), service.running("postgresql://h/d", tmp_path / "log", Console()) as at_work:
        raise KeyboardInterrupt
    assert at_work.process.returncode == -signal.SIGTERM
