"""The demo asks the service by SQL, as a user would."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from rich.console import Console

from millstream.cli.demo.sql_door import answer, ask, status_table

from .conftest import Reader


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
    rows = [
        ("public.a", True, at, timedelta(seconds=0.4), [], None),
        ("public.b", False, at, None, ["public.a"], 3),
    ]
    names = ("stream_table", "is_stale", "data_timestamp", "staleness", "held_back_by", "rows")
    cursor = SimpleNamespace(
        description=[SimpleNamespace(name=name) for name in names], fetchall=lambda: rows
    )
    reader: Any = SimpleNamespace(execute=lambda _: cursor)
    with (console := Console(width=100)).capture() as printed:
        console.print(status_table(reader))
    lines = [line.rstrip() for line in printed.get().splitlines()]
    assert lines[0] == "stream_table   public.a public.b"
    assert lines[1] == "is_stale       yes      no"
    assert lines[3:] == [
        "staleness      0.4 s",
        "held_back_by            public.a",
        "rows                    3",
    ]
