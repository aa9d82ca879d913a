"""TPC-H: each of the 22 queries stays equal to PostgreSQL's answer, by differential refreshes
alone.

    MILLSTREAM_TEST_TPCH_SCALE=0.01     another scale than 0.1

All stream tables are in one database and are refreshed at one cut. A cycle is RF1, RF2 and random
changes of all eight tables; there are five, and the oracle looks at each stream table in each cut,
before it commits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.bundled.server import Server
from millstream.errors import MillstreamError, QueryError
from millstream.postgres.connection import connect
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.testing import oracle
from millstream.testing.tpch.changes import TpchChanges
from millstream.testing.tpch.load import load
from millstream.testing.tpch.queries import queries

# All tests wait for the one fixture, so that all of its time may fall to the first.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

SCALE = float(os.environ.get("MILLSTREAM_TEST_TPCH_SCALE", "0.1"))
CYCLES = 5
QUERIES = queries(SCALE)

# Refused so far. A query that is accepted must leave this set.
NOT_YET: frozenset[str] = frozenset()
KEPT = [name for name in QUERIES if name not in NOT_YET]
# As many rows at any scale: enough that each query's result changes.
SHARE = 0.0001 / SCALE


@dataclass(frozen=True)
class Seen:
    """One stream table after one cycle."""

    report: RefreshReport
    trouble: str
    """How it differs from its query; empty when it does not."""

    @property
    def changed(self) -> int:
        return self.report.rows_inserted + self.report.rows_updated + self.report.rows_deleted


@dataclass
class Course:
    """What happened: which queries were refused, and what each of the others was like in each
    cycle.
    """

    ms: Millstream
    refused: dict[str, MillstreamError] = field(default_factory=dict)
    seen: dict[str, list[Seen]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def create(self, name: str) -> None:
        try:
            self.ms.create_stream_table(name, QUERIES[name], refresh_mode="DIFFERENTIAL")
            self.seen[name] = []
        except QueryError as error:
            self.refused[name] = error

    def cycle(self, changes: TpchChanges) -> None:
        changes.cycle()
        self.ms.app.witness = self._witness
        try:
            self.ms.refresh_all()
        except MillstreamError as error:
            # Of the first that failed; who was not seen in every cycle has failed too.
            self.failures.append(str(error))
        finally:
            self.ms.app.witness = None

    def _witness(self, now: Cut, job: Job, report: RefreshReport) -> None:
        """Ask the oracle; one that differs does not keep the others from being looked at."""
        trouble = ""
        try:
            oracle.check(now.conn, job.table.query, job.table.qualified)
        except AssertionError as error:
            trouble = str(error)
        self.seen[job.table.name].append(Seen(report, trouble))


@pytest.fixture(scope="module")
def course(server: Server, spark: SparkSession) -> Iterator[Course]:
    """Every stream table there can be, through all cycles."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE tpch")
        dsn = server.dsn_for("tester", "tpch")
        try:
            with (
                millstream.connect(dsn, spark=spark) as ms,
                connect(dsn, application_name="application") as conn,
            ):
                load(conn, SCALE)
                course = Course(ms)
                for name in QUERIES:
                    course.create(name)
                changes = TpchChanges(conn, SHARE, every=True)
                for _ in range(CYCLES):
                    course.cycle(changes)
                yield course
        finally:
            admin.execute("DROP DATABASE tpch WITH (FORCE)")


def kept(course: Course, name: str) -> list[Seen]:
    """What was seen of a query in each cycle."""
    assert name not in course.refused, course.refused[name]
    assert len(course.seen[name]) == CYCLES, course.failures
    return course.seen[name]


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_refused_exactly_if_it_is_marked_as_not_maintained(
    course: Course, name: str
) -> None:
    assert (name in course.refused) == (name in NOT_YET), course.refused.get(name)
    if name in course.refused:
        assert course.refused[name].code.startswith("MS1")


@pytest.mark.parametrize("name", KEPT)
def test_the_query_is_exact_after_each_cycle(course: Course, name: str) -> None:
    assert [one.trouble for one in kept(course, name) if one.trouble] == []
    assert course.ms.verify(name).ok


@pytest.mark.parametrize("name", KEPT)
def test_the_query_is_refreshed_differentially_in_each_cycle(course: Course, name: str) -> None:
    assert [one.report.action for one in kept(course, name)] == ["DIFFERENTIAL"] * CYCLES


@pytest.mark.parametrize("name", KEPT)
def test_the_result_of_the_query_really_changes(course: Course, name: str) -> None:
    assert any(one.changed for one in kept(course, name))
