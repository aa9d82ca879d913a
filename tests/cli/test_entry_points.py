"""What commands call: a running service where there is one, and otherwise the Python API in this
process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.cli.entry_points import Doors, opened, served

DSN = "postgresql://h/d"
HERE, THERE = object(), object()


class Opened:
    """Doubles of the doors; it notes which were opened and closed."""

    def __init__(self, service: object | None) -> None:
        self.service = service
        self.events: list[str] = []

    @contextmanager
    def connect(self, dsn: str, **_options: object) -> Iterator[Any]:
        self.events.append(f"connect {dsn}")
        yield HERE
        self.events.append("close")

    @contextmanager
    def asking(self, dsn: str) -> Iterator[Any]:
        self.events.append(f"ask {dsn}")
        yield self.service

    # Any: a context of Typer's; only `obj` is read.
    def context(self) -> Any:
        unused: Any = None
        return SimpleNamespace(obj=Doors(self.connect, unused, unused, unused, self.asking))


def test_an_opened_client_is_closed_after_the_command() -> None:
    doors = Opened(service=None)
    with opened(doors.context(), DSN, "looking") as client:
        assert client is HERE
        assert doors.events == [f"connect {DSN}"]
    assert doors.events == [f"connect {DSN}", "close"]


@pytest.mark.parametrize(
    ("service", "direct", "client", "events"),
    [
        (THERE, False, THERE, [f"ask {DSN}"]),
        (None, False, HERE, [f"ask {DSN}", f"connect {DSN}", "close"]),
        (THERE, True, HERE, [f"connect {DSN}", "close"]),
    ],
    ids=["a service", "no service", "direct"],
)
def test_a_service_that_runs_does_the_work_unless_direct_is_asked_for(
    service: object, direct: bool, client: object, events: list[str]
) -> None:
    doors = Opened(service)
    with served(doors.context(), DSN, "refreshing", direct=direct) as used:
        assert used is client
    assert doors.events == events
