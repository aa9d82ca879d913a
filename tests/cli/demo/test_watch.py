"""The demo's look at the database, and the alteration in the middle of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from millstream.bundled.shop import Count
from millstream.cli.demo import watch
from millstream.cli.demo.board import Alteration, Board
from millstream.cli.demo.story import ALTERATION
from millstream.errors import MillstreamError

from .conftest import SIZES, Reader, filled_board, shown


def history(
    refreshes: dict[str, list[tuple[Any, ...]]],
) -> Callable[[str, int], Iterable[tuple[Any, ...]]]:
    """The answer to the question for refreshes after the last one that was seen."""
    return lambda name, last: [row for row in refreshes.get(name, ()) if row[0] > last]


ROW = ("DIFFERENTIAL", "CHANGED", 87.4, 1234, 1, 2, 3)


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
    reader: Any = Reader(
        {watch.HISTORY: history(refreshes), watch.MODES: [("products", "TRIGGER")]}
    )

    def check() -> None:
        # Refreshed twice after the alteration, the second time with the query as it is then.
        if ALTERATION in reader.executed:
            refreshes["price_range"].append((len(refreshes["price_range"]) + 1, *ROW))
            reader.answers[watch.KEPT] = [
                ("as before" if len(refreshes["price_range"]) < 3 else "SELECT p.title",)
            ]

    board = Board(Count, SIZES, length=3.2)
    with (console := Console(width=120)).capture() as printed:
        watch.watch(reader, board, console, check)
    assert reader.executed.count(ALTERATION) == 1
    assert board.alteration is not None
    # 1.6 seconds are over then: three looks at the three stream tables, at least.
    assert reader.executed[: reader.executed.index(ALTERATION)].count(watch.MODES) >= 3
    assert board.alteration.is_followed
    out = printed.get()
    assert (
        out.index(ALTERATION) < out.index("price_range has followed") < out.index("SELECT p.title")
    )
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
