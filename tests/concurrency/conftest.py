"""What the tests of concurrency share: a judge of each refresh, and a loop that refreshes on time."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from millstream.client import Millstream
from millstream.errors import MillstreamError
from millstream.postgres.connection import Connection
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.testing import oracle
from millstream.testing.writers import VIEWS, make_tables


@dataclass(frozen=True)
class Verdict:
    """One refresh of one stream table, compared with PostgreSQL's answer at its own cut."""

    name: str
    action: str
    reason: str
    changes: int
    found: oracle.OracleDifference

    def __str__(self) -> str:
        return f"{self.name}: {self.action} ({self.reason}) of {self.changes} changes: {self.found}"


@dataclass
class Judge:
    """A witness: asks the oracle in the transaction of the cut, before it commits."""

    shapes: dict[str, tuple[oracle.Shape, ...]]
    verdicts: list[Verdict] = field(default_factory=list)

    def __call__(self, now: Cut, job: Job, report: RefreshReport) -> None:
        name = job.table.name
        changes = sum(one.rows for one in report.inputs if one.path == "changes")
        found = oracle.difference(now.conn, VIEWS[name], name, self.shapes[name])
        self.verdicts.append(Verdict(name, report.action, report.reason, changes, found))

    @property
    def wrong(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.found]

    @property
    def actions(self) -> Counter[tuple[str, str]]:
        """How often each action was taken, and why."""
        return Counter((verdict.action, verdict.reason) for verdict in self.verdicts)

    def __str__(self) -> str:
        changes = sum(verdict.changes for verdict in self.verdicts)
        actions = ", ".join(
            f"{count} {action} ({reason})" for (action, reason), count in self.actions.most_common()
        )
        return f"{len(self.verdicts)} refreshes of {changes} changes, {len(self.wrong)} wrong: {actions}"


@pytest.fixture
def judge(ms: Millstream, conn: Connection) -> Judge:
    """The writers' tables are there; every refresh of a view over them is judged."""
    make_tables(conn)
    judge = Judge({name: oracle.shape_of_query(conn, query) for name, query in VIEWS.items()})
    ms.app.witness = judge
    return judge


class RefreshOnTime(Protocol):
    """Refreshes all tables, or one by itself, every 200 ms or as soon as the last is over; tells
    how often.
    """

    def __call__(self, seconds: float, until: Callable[[], bool] = lambda: False) -> int: ...


@pytest.fixture
def refresh_on_time(ms: Millstream) -> RefreshOnTime:
    dice = random.Random(7)

    def refresh_one_or_all() -> None:
        try:
            if dice.random() < 0.7:
                ms.refresh_all()
            else:
                ms.refresh(dice.choice(list(VIEWS)))
        except MillstreamError as error:
            # A source may be locked by a TRUNCATE for longer than a refresh waits: the next round
            # has it.
            if not error.retryable:
                raise

    def refresh(seconds: float, until: Callable[[], bool] = lambda: False) -> int:
        started, rounds = time.monotonic(), 0
        while time.monotonic() < started + seconds and not until():
            time.sleep(max(0.0, started + rounds * 0.2 - time.monotonic()))
            refresh_one_or_all()
            rounds += 1
        return rounds

    return refresh
