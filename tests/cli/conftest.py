"""A double of the Python API, for tests of the command line alone: arguments in, output and exit
code out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from millstream.cli.app import app
from millstream.cli.entry_points import Doors
from millstream.frontier.snapshot import Snapshot

AT = datetime(2024, 6, 1, 12, 0, 0, tzinfo=UTC)


# Any: the double stands where the API's own classes are asked for.
def report(**changed: object) -> Any:
    """A report of a refresh, as the API gives it."""
    facts: dict[str, object] = {
        "name": "totals", "action": "DIFFERENTIAL", "reason": "changes", "rows_read": 1234, "rows_inserted": 1,
        "rows_updated": 2, "rows_deleted": 3, "duration_ms": 87.4, "data_timestamp": AT,
        "frontier": Snapshot(10, 20, (12,)), "spark_jobs": 1, "phases": {"spark": 50.0}, "initiated_by": "MANUAL",
        "inputs": (SimpleNamespace(path="changes", rows=7), SimpleNamespace(path="lookup", rows=1227)),
        "held_back_by": (), "notices": (),
    }  # fmt: skip
    facts |= changed
    return SimpleNamespace(**facts, as_dict=lambda: facts)


def status(**changed: object) -> Any:
    """The status of a stream table, as the API gives it."""
    facts: dict[str, object] = {
        "name": "totals", "schema": "public", "status": "ACTIVE", "refresh_mode": "AUTO", "schedule": "1s", "rows": 4,
        "data_timestamp": AT, "staleness_seconds": 0.42, "last_action": "NO_DATA", "last_reason": "no_change",
        "pending_changes": 17, "consecutive_errors": 0, "last_error": None, "sources": (), "owner": "postgres",
        "notices": (), "next_try_at": None, "last_transient_error": None,
    }  # fmt: skip
    facts |= changed
    return SimpleNamespace(**facts, as_dict=lambda: facts)


def verification(**changed: object) -> Any:
    """A verification, as the API gives it."""
    facts: dict[str, object] = {
        "name": "totals", "ok": True, "missing": 0, "extra": 0, "sample": [], "rows": 4,
        "frontier": Snapshot(10, 20), "data_timestamp": AT, "rounded": (),
    }  # fmt: skip
    facts |= changed
    return SimpleNamespace(**facts, as_dict=lambda: facts)


def validation(**changed: object) -> Any:
    """A validation of a query, as the API gives it."""
    facts: dict[str, object] = {
        "ok": True, "refusal": None, "key": "key (region)", "notices": (),
        "columns": (SimpleNamespace(name="region", type="text"),),
        "blocks": (SimpleNamespace(name="result", materializes="the state of each group", plan="Block result"),),
        "sources": (SimpleNamespace(name="public.orders", columns=("region",), capture="WAL", reason=""),),
    }  # fmt: skip
    facts |= changed
    return SimpleNamespace(**facts, as_dict=lambda: {"ok": facts["ok"], "key": facts["key"]})


@dataclass
class Double:
    """Notes what is called and answers what it was told to; an exception as an answer is raised."""

    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def called(*given: Any, **named: Any) -> Any:
            self.calls.append((name, given, named))
            answer = self.answers.get(name)
            if isinstance(answer, Exception):
                raise answer
            return answer(*given) if callable(answer) else answer

        return called

    @contextmanager
    def connect(self, dsn: str, **options: Any) -> Iterator[Any]:
        self.calls.append(("connect", (dsn,), {}))
        if isinstance(answer := self.answers.get("connect"), Exception):
            raise answer
        options["progress"]("starting Spark", None)
        yield self
        self.calls.append(("close", (), {}))

    @contextmanager
    def overviews(self, dsn: str) -> Iterator[Callable[[], Any]]:
        self.calls.append(("overviews", (dsn,), {}))
        yield lambda: self.answers["overview"]

    def called(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """How a method was called, each time."""
        return [(given, named) for called, given, named in self.calls if called == name]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


class Line:
    """The command line, connected to a double."""

    def __init__(self) -> None:
        self.double = Double()

    def __call__(
        self, *arguments: str, stdin: str | None = None, dsn: str | None = "postgresql://h/d"
    ) -> Ended:
        doors = Doors(
            connect=self.double.connect,
            embedded=self.double.embedded,
            doctor=self.double.doctor,
            overviews=self.double.overviews,
        )
        environment = {"MILLSTREAM_DSN": dsn, "COLUMNS": "200"}
        ended = CliRunner().invoke(app, list(arguments), input=stdin, env=environment, obj=doors)
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return Ended(ended.exit_code, ended.stdout, ended.stderr)


@pytest.fixture
def line() -> Line:
    """Call it with arguments; tell its `double` what to answer."""
    return Line()
