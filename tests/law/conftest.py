"""The law: after every refresh a stream table equals its query, and the refresh was the one we
meant.

`Law` refreshes through the real product and, inside each cut's transaction, asks the oracle. A
refresh that silently recomputed everything would satisfy the oracle and prove nothing, so the
action is looked at too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.algebra.block import GroupedBlock
from millstream.bundled.server import Server
from millstream.errors import MillstreamError
from millstream.postgres.connection import Connection, connect
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.testing import oracle

# Sums of floats that are not exact differ in their last digits with the order of adding.
CLOSE = 1e-9


class Held(Exception):
    """Nothing was wrong; raised to roll the refresh back all the same."""


@dataclass
class Law:
    """Millstream with a witness in every cut."""

    ms: Millstream
    conn: Connection
    """The application's own connection: it changes the tables."""
    rows: dict[str, int] = field(default_factory=dict)
    """How many rows each stream table had when it was last seen to be right."""

    def __post_init__(self) -> None:
        self.ms.app.witness = self._witness

    def _witness(self, now: Cut, job: Job, report: RefreshReport) -> None:
        close = CLOSE if any(isinstance(block, GroupedBlock) for block in job.blocks) else 0.0
        self.rows[job.table.name] = oracle.check(
            now.conn, job.table.query, job.table.qualified, close=close
        )

    def create(self, name: str, query: str, *, mode: str = "DIFFERENTIAL") -> None:
        """Create a stream table; its first content is checked."""
        report = self.ms.create_stream_table(name, query, refresh_mode=mode)
        assert report is not None
        assert (report.action, name in self.rows) == ("FULL", True)

    def refresh(self, *names: str, action: str = "DIFFERENTIAL") -> list[RefreshReport]:
        """Refresh these, each at its own cut, and look at what was done."""
        reports = []
        for name in names:
            self.rows.pop(name, None)
            report = self.ms.refresh(name)
            assert report.action == action, f"{name}: {report.action} ({report.reason})"
            assert name in self.rows, f"nobody looked at {name}"
            reports.append(report)
        return reports

    def refresh_all(self, action: str = "DIFFERENTIAL") -> list[RefreshReport]:
        """Refresh every stream table, all at one cut."""
        names = set(self.rows)
        self.rows.clear()
        reports = self.ms.refresh_all()
        assert [(one.name, one.action) for one in reports if one.action != action] == []
        assert len({str(one.frontier) for one in reports}) == 1
        assert set(self.rows) == names
        return reports

    def holds_for(self, queries: Mapping[str, str], changes: Sequence[str]) -> None:
        """Create a stream table for each query; after each change refresh all of them,
        differentially or not at all.

        All share a cut. Where one goes wrong they are refreshed one by one: each that is wrong is
        told by its key.
        """
        names = {what: f"st_{number}" for number, what in enumerate(queries)}
        wrong = dict[str, Exception]()
        for what, query in queries.items():
            self._collect(wrong, what, partial(self.create, names[what], query))
        for change in changes:
            self.change(change)
            try:
                self.rows.clear()
                for report in self.ms.refresh_all():
                    self._check(report)
            except (AssertionError, MillstreamError):
                for what in [what for what in queries if what not in wrong]:
                    self._collect(wrong, what, partial(self._refreshed, names[what]))
        assert not wrong, "\n".join(f"{what}: {trouble}" for what, trouble in wrong.items())

    def _collect(self, wrong: dict[str, Exception], what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except (AssertionError, MillstreamError) as trouble:
            wrong[what] = trouble

    def _refreshed(self, name: str) -> None:
        self.rows.pop(name, None)
        self._check(self.ms.refresh(name))

    def _check(self, report: RefreshReport) -> None:
        assert report.action in ("DIFFERENTIAL", "NO_DATA"), (
            f"{report.name}: {report.action} ({report.reason})"
        )
        assert report.name in self.rows or report.action == "NO_DATA", (
            f"nobody looked at {report.name}"
        )

    def change(self, *statements: str) -> None:
        """Change tables, all in one transaction; a string may hold several statements."""
        with self.conn.transaction():
            for statement in statements:
                self.conn.execute(statement.encode())

    def waiting(self, setup: str, tables: Mapping[str, str], changes: Sequence[str]) -> Law:
        """The same with stream tables that are right, and with changes that wait."""
        self.change(setup)
        for name, query in tables.items():
            self.create(name, query)
        self.change(*changes)
        return self

    def broken_by(self, name: str) -> Exception | None:
        """Refresh, and roll it back in any case; the trouble there was, or None when the law held."""
        self.ms.app.witness = self._last_witness
        try:
            self.ms.refresh(name)
        except Held:
            return None
        except (AssertionError, MillstreamError) as trouble:
            return trouble
        finally:
            self.ms.app.witness = self._witness
        raise AssertionError(f"nobody looked at {name}")

    def _last_witness(self, now: Cut, job: Job, report: RefreshReport) -> None:
        self._witness(now, job, report)
        raise Held


Lawful = Callable[..., list[RefreshReport]]

# Tables of tests of one operator.
SHOP = """
    CREATE TABLE customers (id int PRIMARY KEY, region text, credit int);
    CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(12,2), status text);
    CREATE INDEX ON orders (customer);
    INSERT INTO customers SELECT i, 'r' || i % 3, i FROM generate_series(1, 9) AS i;
    INSERT INTO orders SELECT i, 1 + i % 9, i * 1.10, CASE i % 3 WHEN 0 THEN 'open' ELSE 'paid' END
        FROM generate_series(1, 40) AS i;
"""

TWO_TABLES = """
    CREATE TABLE a (id int PRIMARY KEY, x int, big bigint, t text, v varchar(3), c char(3), m numeric(5,2), ok boolean);
    CREATE TABLE b (
        id int PRIMARY KEY, y int, z int, small smallint, t text, v varchar(6), c char(6), n numeric(12,6), ok boolean
    );
    INSERT INTO a SELECT i, i % 4, i, 'a' || i % 3, left('abc', i % 4), left('abc', i % 4), i * 1.25, i % 3 = 0
        FROM generate_series(1, 9) AS i;
    INSERT INTO b SELECT i, i % 5, i % 2, i, 'b' || i % 3, left('abcdef', i % 6), left('abcdef', i % 6), i * 0.625,
        nullif(i % 3, 1) = 0 FROM generate_series(1, 9) AS i;
"""
TWO_CHANGES = (
    """
    UPDATE a SET x = nullif(x + 1, 3), ok = NOT ok;
    UPDATE b SET y = nullif(y + 1, 2), z = y, t = NULL WHERE id % 2 = 0;
    DELETE FROM a WHERE id = 4;
    DELETE FROM b WHERE id = 4
    """,
    "INSERT INTO a (id, x) VALUES (20, 1), (21, NULL); UPDATE b SET ok = NOT ok, t = 'new'",
)


@pytest.fixture
def law(ms: Millstream, database: str) -> Iterator[Law]:
    """The law over a fresh database."""
    with connect(database, application_name="application") as conn:
        yield Law(ms, conn)


@pytest.fixture(scope="module")
def module_law(server: Server, spark: SparkSession) -> Iterator[Law]:
    """The law over a database that the tests of a module share."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE law_shared")
        dsn = server.dsn_for("tester", "law_shared")
        try:
            with (
                millstream.connect(dsn, spark=spark) as ms,
                connect(dsn, application_name="application") as conn,
            ):
                yield Law(ms, conn)
        finally:
            admin.execute("DROP DATABASE law_shared WITH (FORCE)")


@pytest.fixture
def lawful(law: Law) -> Callable[..., list[RefreshReport]]:
    """Make tables, a stream table over them, change them, refresh: `lawful(setup, query,
    *changes)`.

    Each change is a transaction with a refresh after it. At the end nothing is left to do, and a
    full recomputation finds nothing to correct.
    """

    def lawful(
        setup: str, query: str, *changes: str, then_full: bool = True
    ) -> list[RefreshReport]:
        law.change(setup)
        law.create("kept", query)
        reports = []
        for change in changes:
            law.change(change)
            reports += law.refresh("kept")
        law.refresh("kept", action="NO_DATA")
        if then_full:
            full = law.ms.refresh("kept", full=True)
            assert (full.rows_inserted, full.rows_updated, full.rows_deleted) == (0, 0, 0)
        return reports

    return lawful
