"""The demo's end: its document, its proof, its exit code.

The whole of it runs in `cli/test_processes.py`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from tests.cli.conftest import Line

from millstream.cli.demo import command
from millstream.cli.exit_codes import Exit

from .conftest import filled_board

EQUAL: dict[str, Any] = {
    "name": "open_orders", "ok": True, "missing": 0, "extra": 0, "sample": [], "rows": 4, "frontier": "10:20:",
    "data_timestamp": "2024-06-01T12:00:00+00:00", "rounded": [],
}  # fmt: skip
DIFFERENT = {**EQUAL, "ok": False, "missing": 1}


@pytest.mark.parametrize(
    ("verification", "code"), [(EQUAL, Exit.OK), (DIFFERENT, Exit.CHECK_FAILED)]
)
def test_it_ends_with_1_if_a_stream_table_differs(
    line: Line, monkeypatch: pytest.MonkeyPatch, verification: dict[str, Any], code: Exit
) -> None:
    outcome = command._Outcome(filled_board(), [EQUAL, verification], Table())
    monkeypatch.setattr(command, "_play", lambda *_: outcome)
    ended = line("demo", "--seconds", "2", "--json")
    assert ended.code == code
    document = json.loads(ended.out)
    assert [one["ok"] for one in document["verifications"]] == [True, verification["ok"]]
    assert document["refreshes"] == {"open_orders": 1, "sales_by_region": 1, "price_range": 1}
    assert (document["altered"], document["seconds"]) == (None, 7.0)


@pytest.mark.parametrize(("arguments", "length"), [((), 30.0), (("--seconds", "2"), 2.0)])
def test_without_a_terminal_it_ends_by_itself(
    line: Line, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], length: float
) -> None:
    lengths = list[float | None]()

    def play(_doors: object, _console: Console, seconds: float | None) -> command._Outcome:
        lengths.append(seconds)
        return command._Outcome(filled_board(), [EQUAL], Table())

    monkeypatch.setattr(command, "_play", play)
    line("demo", *arguments)
    assert lengths == [length]
