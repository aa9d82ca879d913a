"""The demo's live part: read by SQL what the service does, twice a second, until the time is over.

In the middle of it a source is altered. Ctrl-C ends it and starts the verification; a second Ctrl-C
ends that too.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

from rich.console import Console
from rich.live import Live

from millstream.cli.demo.board import Alteration, Board, Refresh
from millstream.cli.demo.story import ALTERATION, ALTERED_READER, ALTERED_SOURCE
from millstream.cli.demo.view import followed, plain, screen
from millstream.postgres.connection import Connection

INTERVAL = 0.5
# Seconds between two reports if there is no terminal.
PLAIN_INTERVAL = 2.0
# Seconds until the source is altered; in a shorter demo, half of its length.
ALTERED_AT = 10.0

HISTORY = """
SELECT id, action, reason, duration_ms, rows_read, rows_inserted, rows_updated, rows_deleted
FROM millstream.get_refresh_history(%s, 50)
WHERE status = 'COMPLETED' AND id > %s
ORDER BY id
"""
STATUS = (
    "SELECT stream_table, extract(epoch FROM staleness)::float8, "
    "consecutive_errors > 0, error FROM millstream.status()"
)
KEPT = "SELECT detail FROM millstream.explain_st(%s) WHERE part = 'query'"
MODES = "SELECT source::text, cdc_mode FROM millstream.check_cdc_health() ORDER BY source::text"
PEEK = "SELECT region, lines, revenue FROM sales_by_region ORDER BY region"


def watch(reader: Connection, board: Board, console: Console, check: Callable[[], None]) -> None:
    """Watch until the board's length is over, or until Ctrl-C; on a terminal as a live view,
    otherwise as lines.

    `check` raises an error if the service has ended.
    """
    with _asked_to_end() as asked:
        if console.is_terminal:
            with Live(get_renderable=lambda: screen(board), console=console, refresh_per_second=8):
                _looks(reader, board, console, asked, shown=check)
        else:
            _looks(reader, board, console, asked, shown=_now_and_then(board, console, check))


@contextmanager
def _asked_to_end() -> Iterator[Event]:
    """Let Ctrl-C set an event, for a `with` block."""
    asked = Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    former = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, former)


def _looks(
    reader: Connection, board: Board, console: Console, asked: Event, shown: Callable[[], None]
) -> None:
    began = time.monotonic()
    while not asked.is_set() and not _is_over(board):
        looked = time.monotonic()
        look(reader, board)
        if board.alteration is None and board.seconds >= min(
            ALTERED_AT, (board.length or 2 * ALTERED_AT) / 2
        ):
            alter(reader, board, console)
        follow(reader, board, console)
        asked.wait(max(0.0, looked + INTERVAL - time.monotonic()))
        board.seconds = time.monotonic() - began
        shown()


def _is_over(board: Board) -> bool:
    """Return True if the time is over and the source was altered, which may take longer on a slow
    machine.
    """
    return (
        board.length is not None and board.seconds >= board.length and board.alteration is not None
    )


def look(reader: Connection, board: Board) -> None:
    """Read the new figures from the database."""
    for name, line in board.lines.items():
        for row in reader.execute(HISTORY, (name, line.last_id)).fetchall():
            line.note(Refresh(*row))
    errors = []
    # Ignore a transient error, such as a lock of another session.
    for name, staleness, is_failing, error in reader.execute(STATUS).fetchall():
        board.lines[name.rpartition(".")[2]].staleness = staleness
        errors += [f"{name}: {error}"] if is_failing else []
    board.trouble = "\n".join(errors)
    board.peek = reader.execute(PEEK).fetchall()
    board.modes = dict(reader.execute(MODES).fetchall())


def alter(reader: Connection, board: Board, console: Console) -> None:
    """Alter a source under the service and the shop's traffic."""
    kept = kept_query(reader)
    reader.execute(ALTERATION)
    altered_at = time.monotonic()
    # The statement has waited for running refreshes, so every refresh that ends from now on has
    # seen it.
    look(reader, board)
    board.alteration = Alteration(ALTERATION, altered_at, kept, board.lines[ALTERED_READER].last_id)
    _say(console, f"A column that {ALTERED_READER} reads gets another name: {ALTERATION};")


def follow(reader: Connection, board: Board, console: Console) -> None:
    """Record when the service has followed the altered source: the query has changed, and a refresh
    with it has ended.
    """
    alteration, line = board.alteration, board.lines[ALTERED_READER]
    if alteration is None or alteration.is_followed or line.last_id == alteration.last_id:
        return
    kept = kept_query(reader)
    if kept != alteration.kept:
        alteration.followed_after = time.monotonic() - alteration.at
        _say(console, f"{followed(alteration, line)} Its query is now:")
        _say(console, kept)
        if board.modes.get(ALTERED_SOURCE) == "TRIGGER":
            _say(
                console,
                f"Since its columns have changed, triggers capture {ALTERED_SOURCE} for a while.",
            )


def kept_query(reader: Connection) -> str:
    """Return the recorded query of the stream table whose source is altered."""
    row = reader.execute(KEPT, (ALTERED_READER,)).fetchone()
    return str(row[0]) if row else ""


def _now_and_then(board: Board, console: Console, check: Callable[[], None]) -> Callable[[], None]:
    """Print the board as plain lines, at most every few seconds."""
    printed = 0.0

    def shown() -> None:
        nonlocal printed
        check()
        if board.seconds - printed >= PLAIN_INTERVAL:
            printed = board.seconds
            _say(console, plain(board))

    return shown


def _say(console: Console, text: str) -> None:
    # Not on a terminal: soft_wrap would also stop rich from wrapping the live screen.
    console.print(text, markup=False, soft_wrap=not console.is_terminal)
