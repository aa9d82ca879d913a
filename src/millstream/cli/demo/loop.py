"""The demo's middle part: refresh what is due, every half second, until the time is over.

Ctrl-C asks for the end: the refresh at work is finished first, since breaking into a call to Spark leaves
its connection in an unknown state. A second Ctrl-C does not wait.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from millstream.cli.demo.board import Board
from millstream.cli.demo.view import plain, screen
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from millstream.client import Millstream

INTERVAL = 0.5
# Where there is no terminal, so many seconds lie between two reports.
PLAIN_INTERVAL = 2.0

MODES = "SELECT source::text, cdc_mode FROM millstream.check_cdc_health() ORDER BY source::text"
PEEK = "SELECT region, lines, revenue FROM sales_by_region ORDER BY region"


def keep_fresh(client: Millstream, reader: Connection, board: Board, console: Console) -> None:
    """Tick until the board's length is over, or until Ctrl-C; live on a terminal, in lines elsewhere."""
    with _asked_to_end() as asked:
        if console.is_terminal:
            with Live(get_renderable=lambda: screen(board), console=console, refresh_per_second=8):
                _ticks(client, reader, board, asked, shown=lambda: None)
        else:
            _ticks(client, reader, board, asked, shown=_now_and_then(board, console))


@contextmanager
def _asked_to_end() -> Iterator[Event]:
    """Ctrl-C sets the event for the length of the `with` block."""
    asked = Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    # Spark has put a handler of its own here, which cancels its jobs.
    former = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, former)


def _ticks(client: Millstream, reader: Connection, board: Board, asked: Event, shown: Callable[[], None]) -> None:
    began = time.monotonic()
    while not asked.is_set() and (board.length is None or board.seconds < board.length):
        tick = time.monotonic()
        _tick(client, board)
        board.peek = reader.execute(PEEK).fetchall()
        board.modes = dict(reader.execute(MODES).fetchall())
        asked.wait(max(0.0, tick + INTERVAL - time.monotonic()))
        board.seconds = time.monotonic() - began
        shown()


def _tick(client: Millstream, board: Board) -> None:
    """One tick. A stream table that fails does not stop the others; the next tick tries it again."""
    for report in client.tick():
        board.note(report)
    failing = [one for one in client.status() if one.consecutive_errors]
    board.trouble = "\n".join(f"{one.name}: {one.last_error}" for one in failing)


def _now_and_then(board: Board, console: Console) -> Callable[[], None]:
    """Print the board in plain lines, each time enough seconds have passed."""
    printed = 0.0

    def shown() -> None:
        nonlocal printed
        if board.seconds - printed >= PLAIN_INTERVAL:
            printed = board.seconds
            console.print(plain(board), markup=False, soft_wrap=True)

    return shown
