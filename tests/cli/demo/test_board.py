"""The demo's board: what it adds up."""

from __future__ import annotations

from .conftest import filled_board


def test_the_board_adds_up_refreshes_and_rows_read() -> None:
    board = filled_board()
    line = board.lines["sales_by_region"]
    assert (line.refreshes, line.rows_read, line.last_id) == (1, 1234, 1)
    assert board.source_rows(line) == 4310
    assert board.read_anew() == 300 + 4310 + 4020
