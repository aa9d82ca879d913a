"""What the crash tests share: a mill of stream tables to crash, and a process to kill beside it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream.bundled.server import Server
from millstream.catalog import history
from millstream.observe.failpoint import VARIABLE
from millstream.postgres.connection import connect
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.testing import forks, oracle
from millstream.testing.waiting import wait_until
from millstream.testing.writers import VIEWS, make_tables

# -- the mill --------------------------------------------------------------------------------

# One batch of changes: every table gains, loses and changes rows, some of them equal ones; groups
# lose their least and their greatest value, which has them recomputed; a group comes and one goes.
BATCH = (
    "INSERT INTO visits SELECT 'page 1', 1 FROM generate_series(1, 3)",
    "DELETE FROM visits WHERE ctid = (SELECT min(ctid) FROM visits WHERE page = 'page 1' AND seconds = 1)",
    "UPDATE visits SET seconds = 2 - mod(seconds, 2) WHERE ctid = (SELECT max(ctid) FROM visits WHERE seconds < 3)",
    "UPDATE orders SET amount = amount + 1 WHERE customer IN (3, 4)",
    "DELETE FROM orders WHERE id IN (SELECT max(id) FROM orders WHERE amount = (SELECT max(amount) FROM orders))",
    "UPDATE orders SET id = -id, amount = amount - 0.01 WHERE id = (SELECT min(id) FROM orders WHERE id > 0)",
    "UPDATE orders SET customer = customer + 100 WHERE customer = (SELECT max(customer) FROM orders)",
    "UPDATE customers SET region = CASE region WHEN 'region 0' THEN 'region 1' ELSE 'region 0' END WHERE id = 3",
)

_STATES = (
    "SELECT 'millstream_state.' || c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE n.nspname = 'millstream_state' AND c.relkind = 'r' ORDER BY 1"
)
_FRONTIERS = "SELECT name, frontier::text, status, consecutive_errors FROM millstream.stream_tables ORDER BY name"
_COMPLETED = (
    "SELECT s.name, h.action, count(*) FROM millstream.refresh_history AS h "
    "JOIN millstream.stream_tables AS s ON s.id = h.stream_table_id WHERE h.status = 'COMPLETED' "
    "GROUP BY s.name, h.action ORDER BY 1, 2"
)
_FURNITURE = (
    "SELECT 'relation', oid::regclass::text FROM pg_class WHERE oid >= 16384 AND relpersistence <> 't' "
    "UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE oid >= 16384 "
    "UNION ALL SELECT 'trigger', tgname || ' on ' || tgrelid::regclass FROM pg_trigger "
    "UNION ALL SELECT 'stream table', name FROM millstream.stream_tables ORDER BY 1, 2"
)

Rows = tuple[tuple[object, ...], ...]


@dataclass(frozen=True)
class Seen:
    """All that a refresh changes, as it is seen from outside."""

    frontiers: Rows
    completed: dict[tuple[str, str], int]
    """How many refreshes the history calls completed, by table and action."""
    contents: Rows
    """The number of rows and a digest of each stream table and each state."""


class Mill:
    """The writers' tables with a stream table over each of their views; every refresh in it is
    compared.
    """

    def __init__(self, dsn: str, spark: SparkSession) -> None:
        self.dsn = dsn
        self.conn = connect(dsn)
        make_tables(self.conn)
        self.ms = millstream.connect(dsn, spark=spark)
        self.ms.app.witness = self.compare
        self.compared = 0
        for name, query in VIEWS.items():
            self.ms.create_stream_table(name, query)

    def compare(self, now: Cut, job: Job, report: RefreshReport) -> None:
        """A witness: PostgreSQL's answer at the very cut."""
        oracle.check(now.conn, VIEWS.get(job.table.name, job.table.query), job.table.name)
        self.compared += 1

    def change(self) -> None:
        """Make one batch of changes, in one transaction."""
        with self.conn.transaction():
            for statement in BATCH:
                assert self.conn.execute(statement.encode()).rowcount > 0, statement

    def refresh(self) -> dict[str, str]:
        """Refresh all, comparing each; tell the action by table."""
        before = self.compared
        reports = self.ms.refresh_all()
        assert self.compared == before + len(reports)
        return {report.name: report.action for report in reports}

    def check(self) -> None:
        """Compare from outside, at this moment; nobody may be writing."""
        for name, query in VIEWS.items():
            oracle.check(self.conn, query, name)

    def seen(self) -> Seen:
        """Look at all that a refresh changes."""
        names = [name for name, *_ in self.conn.execute(_FRONTIERS).fetchall()]
        names += [name for (name,) in self.conn.execute(_STATES).fetchall()]
        digest = "SELECT '{0}', count(*), sum(hashtextextended(r::text, 0)) FROM {0} AS r"
        contents = [self.conn.execute(digest.format(name).encode()).fetchall()[0] for name in names]
        frontiers = tuple(self.conn.execute(_FRONTIERS).fetchall())
        completed = {
            (name, action): count
            for name, action, count in self.conn.execute(_COMPLETED).fetchall()
        }
        return Seen(frontiers, completed, tuple(contents))

    def settled(self) -> int:
        """Settle what a dead process has left in the history; tell how many refreshes are said to
        have failed.
        """
        failed = list[int]()

        def is_done() -> bool:
            failed.append(history.fail_orphans(self.conn))
            running = "SELECT FROM millstream.refresh_history WHERE status = 'RUNNING'"
            return not self.conn.execute(running).fetchall()

        # The server notices one after the other that the sessions of a process are gone.
        wait_until(is_done)
        return sum(failed)

    def furniture(self) -> Rows:
        """Every table, index, function and trigger in the house."""
        return tuple(self.conn.execute(_FURNITURE).fetchall())

    def close(self) -> None:
        self.ms.close()
        self.conn.close()


@pytest.fixture(scope="session")
def make_mill() -> type[Mill]:
    """To set up a mill elsewhere."""
    return Mill


@pytest.fixture(scope="module")
def mill(server: Server, spark: SparkSession) -> Iterator[Mill]:
    """One mill for all crashes of a module: it has to stand them all."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE crashes")
        running = Mill(server.dsn_for("tester", "crashes"), spark)
        try:
            yield running
        finally:
            running.close()
            admin.execute("DROP DATABASE crashes WITH (FORCE)")


# -- the process to kill ---------------------------------------------------------------------

CHILD = Path(__file__).parent / "child.py"


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    code: int
    output: str
    trouble: str

    @property
    def killed_at(self) -> tuple[str, int] | None:
        """The failpoint and the pass, if it died by SIGKILL and told so."""
        told = [line.split() for line in self.output.splitlines() if line.startswith("killed at")]
        return (told[0][2], int(told[0][3])) if told and self.code == -signal.SIGKILL else None

    @property
    def backend(self) -> int:
        """The process that served it."""
        return int(
            next(line.split()[1] for line in self.output.splitlines() if line.startswith("backend"))
        )

    def __str__(self) -> str:
        return f"exit {self.code}\n{self.output}\n{self.trouble[-3000:]}"


class Child(Protocol):
    """Starts a process that dies at a pass of a failpoint, or nowhere, and waits until its session
    is over too.
    """

    def __call__(
        self, dsn: str, *arguments: str, point: str | None = None, number: int = 1
    ) -> Ended: ...


@pytest.fixture
def child(spark: SparkSession) -> Child:
    """A child that uses our Spark."""
    # No part of PySpark's public face; there is no other way to drive a Spark that runs already.
    parameters = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]  # there is one: Spark runs
    return _child(
        {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }
    )


@pytest.fixture
def child_with_own_spark() -> Child:
    """A child that starts a Spark of its own."""
    return _child({})


def _child(environment: Mapping[str, str]) -> Child:
    def run(dsn: str, *arguments: str, point: str | None = None, number: int = 1) -> Ended:
        armed = {VARIABLE: point, "MILLSTREAM_TEST_PASS": str(number)} if point else {}
        done = forks.run(
            CHILD, dsn, *arguments, environment={**os.environ, **environment, **armed}, timeout=120
        )
        ended = Ended(done.returncode, done.stdout, done.stderr)
        assert "backend" in ended.output, ended
        _wait_for_session(dsn, ended.backend)
        return ended

    return run


def _wait_for_session(dsn: str, backend: int, seconds: float = 20.0) -> None:
    """The server finds out by itself that its client is gone, and rolls back."""
    deadline = time.monotonic() + seconds
    with connect(dsn) as observer:
        while observer.execute(
            "SELECT 1 FROM pg_stat_activity WHERE pid = %s", (backend,)
        ).fetchone():
            assert time.monotonic() < deadline, "the server has not noticed"
            time.sleep(0.02)
