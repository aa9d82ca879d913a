"""A double of a connection, and boards, for tests of the demo alone."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from millstream.bundled.shop import Count
from millstream.cli.demo import watch
from millstream.cli.demo.board import Board, Refresh
from millstream.cli.demo.view import screen

SIZES = {"customers": 10, "products": 20, "orders": 300, "order_lines": 4000}


def refresh(id: int = 1, **changed: Any) -> Refresh:
    """A refresh, as the history shows it."""
    facts: dict[str, Any] = {
        "action": "DIFFERENTIAL", "reason": "CHANGED", "duration_ms": 87.4, "rows_read": 1234, "rows_inserted": 1,
        "rows_updated": 2, "rows_deleted": 3,
    }  # fmt: skip
    return Refresh(id, **facts | changed)


class Reader:
    """A double of a connection: answers each statement with rows, by its text; notes what is
    executed.
    """

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
