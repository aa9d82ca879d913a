"""Plans are made when they are needed: a new process plans no stream table of which nothing has
changed.

The first tick of a new process over 300 stream tables took 36 seconds, nearly all of it planning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.catalog import stream_tables, upstreams
from millstream.catalog.processes import leadership
from millstream.compiler.server.plan_query import QueryPlan, plan_query, version_stamp
from millstream.errors import Deposed
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.service import app
from millstream.settings import Settings
from millstream.spark import session
from millstream.testing import oracle
from millstream.testing.kinds import KINDS, make_table

pytestmark = pytest.mark.spark

# A diamond, one beside it, and one that asks what time it is.
GRAPH = {
    "base": "SELECT k, sum(v) AS v FROM t0 GROUP BY k",
    "left_half": "SELECT k, v FROM base WHERE v > 5",
    "right_half": "SELECT count(*) AS n FROM base",
    "both": "SELECT l.k, r.n FROM left_half AS l CROSS JOIN right_half AS r",
    "beside": "SELECT k, count(*) AS n FROM t1 GROUP BY k",
    "by_day": "SELECT id FROM days WHERE day < now()",
}


@pytest.fixture
def writer(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        for number in range(3):
            make_table(conn, f"t{number}")
        conn.execute(
            "CREATE TABLE days (id int PRIMARY KEY, day timestamptz); INSERT INTO days VALUES (1, '2020-01-01')"
        )
        conn.execute("CREATE VIEW seen AS SELECT id, v FROM t2")
        yield conn


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that have been planned since."""
    queries = list[str]()

    def noted(conn: Connection, query: str, **options: Any) -> QueryPlan:  # as they came
        queries.append(query)
        return plan_query(conn, query, **options)

    monkeypatch.setattr(app, "plan_query", noted)
    return queries


@pytest.fixture
def anew(database: str, spark: SparkSession) -> Callable[[], AbstractContextManager[Millstream]]:
    """A new process: it knows no plans.

    Each of its refreshes is compared with PostgreSQL's answer.
    """

    def exact(now: Cut, job: Job, report: RefreshReport) -> None:
        oracle.check(now.conn, job.table.query, job.table.qualified)

    @contextmanager
    def connected() -> Iterator[Millstream]:
        with millstream.connect(database, spark=spark) as ms:
            ms.app.witness = exact
            yield ms

    return connected


Anew = Callable[[], AbstractContextManager[Millstream]]


def make(ms: Millstream, queries: dict[str, str]) -> None:
    for name, query in queries.items():
        ms.create_stream_table(name, query, schedule="continuous", refresh_mode="DIFFERENTIAL")


def actions(ms: Millstream) -> dict[str, str]:
    return {report.name: report.action for report in ms.tick()}


def test_a_new_process_plans_no_stream_table_of_which_nothing_has_changed(
    anew: Anew, writer: psycopg.Connection, planned: list[str]
) -> None:
    with anew() as ms:
        make(ms, {kind: query.format(t="t0") for kind, query in KINDS.items()})
    planned.clear()
    with anew() as ms:
        assert set(actions(ms).values()) == {"NO_DATA"}
        assert set(actions(ms).values()) == {"NO_DATA"}
        assert planned == []
        writer.execute("UPDATE t0 SET v = v + 1, k = k + 1, s = s || 'x' WHERE id = 3")
        writer.execute("UPDATE t0 SET id = 40 WHERE id = 4")
        assert set(actions(ms).values()) == {"DIFFERENTIAL"}
        assert len(planned) == len(KINDS)


def test_what_changed_and_what_reads_it_are_planned_and_move_in_one_cut_with_the_rest_of_the_graph(
    anew: Anew, writer: psycopg.Connection, planned: list[str]
) -> None:
    with anew() as ms:
        make(ms, GRAPH)
    planned.clear()
    writer.execute("UPDATE t0 SET v = v + 1 WHERE id = 3")
    with anew() as ms:
        idle = {name for name, action in actions(ms).items() if action == "NO_DATA"}
        assert idle == {"beside", "by_day"}
        # The one that asks for the time is planned in any case; the one beside them is not.
        assert len(planned) == 5
        assert len({one.data_timestamp for one in ms.status() if one.name in GRAPH}) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("TRUNCATE t2", "SOURCE_TRUNCATED"),
        ("CREATE OR REPLACE VIEW seen AS SELECT id, (v + 1)::numeric(10,2) AS v FROM t2", "VIEW_REPLACED"),
        ("ALTER TABLE t2 DISABLE TRIGGER USER; DELETE FROM t2 WHERE id = 1", "CAPTURE_GAP"),
        ("ALTER TABLE t2 RENAME v TO w; UPDATE t2 SET w = 0 WHERE id = 1; ALTER TABLE t2 RENAME w TO v",
         "SOURCE_CHANGED"),
        ("VACUUM FULL t2", "SOURCE_REWRITTEN"),
        ("ALTER TABLE t2 RENAME TO former; CREATE TABLE t2 (LIKE former INCLUDING ALL); "
         "CREATE OR REPLACE VIEW seen AS SELECT id, v FROM t2", "SOURCE_REPLACED"),
    ],
)  # fmt: skip
def test_a_changed_definition_under_an_unplanned_stream_table_is_detected_and_reported(
    anew: Anew, writer: psycopg.Connection, planned: list[str], change: str, reason: str
) -> None:
    with anew() as ms:
        make(ms, {"s": "SELECT id, v FROM seen", "other": "SELECT id, v FROM t1"})
    planned.clear()
    for statement in change.split("; "):
        writer.execute(statement.encode())
    writer.execute("LISTEN millstream_alert")
    with anew() as ms:
        report = {report.name: (report.action, report.reason) for report in ms.tick()}
        assert report == {"s": ("REINITIALIZE", reason), "other": ("NO_DATA", "NO_CHANGE")}
        told = [json.loads(one.payload) for one in writer.notifies(timeout=60, stop_after=1)][:1]
        assert [(one["alert"], one["stream_table"], one["reason"]) for one in told] == [
            ("reinitialize_needed", '"public"."s"', reason)
        ]
        assert planned
        writer.execute("INSERT INTO t2 VALUES (70, 1, 1, 'x')")
        assert actions(ms) == {"s": "DIFFERENTIAL", "other": "NO_DATA"}
        assert all(ms.verify(name).ok for name in ("s", "other"))


def test_a_stream_table_that_is_due_takes_what_it_reads_along(
    anew: Anew, writer: psycopg.Connection
) -> None:
    with anew() as ms:
        ms.create_stream_table("a", "SELECT id, v FROM t0", schedule="1h")
        ms.create_stream_table("b", "SELECT id, v + 1 AS v FROM a", schedule="calculated")
        ms.create_stream_table("c", "SELECT sum(v) AS s FROM b", schedule="continuous")
        writer.execute("UPDATE t0 SET v = v + 1 WHERE id = 3")
        assert actions(ms) == dict.fromkeys("abc", "DIFFERENTIAL")
        writer.execute("UPDATE t0 SET v = v + 1 WHERE id = 3")
        ms.alter_stream_table("b", schedule="manual")
        assert actions(ms) == {"c": "NO_DATA"}, (
            "what is manual is not pulled, nor what only it reads"
        )
        cut = {one.name: one.data_timestamp for one in ms.status()}
        assert cut["c"] == cut["b"], "no later than what it reads"


def test_one_that_is_tried_again_in_a_later_cut_takes_what_it_reads_to_that_cut(
    anew: Anew, writer: psycopg.Connection
) -> None:
    """The bug: the second try of a reader had a later cut than what it reads, which was done with
    the first.
    """
    with anew() as ms:
        ms.create_stream_table("a", "SELECT id, v FROM t0", schedule="continuous")
        ms.create_stream_table(
            "b", "SELECT id, v FROM a UNION ALL SELECT id, v FROM t2", schedule="continuous"
        )
        writer.execute("UPDATE t0 SET v = v + 1 WHERE id = 3")
        # Its capture is repaired between the two tries.
        writer.execute("ALTER TABLE t2 DISABLE TRIGGER USER")
        reports = {report.name: report for report in ms.tick()}
        assert (reports["a"].action, reports["b"].action) == ("DIFFERENTIAL", "REINITIALIZE")
        cut_at = "SELECT count(DISTINCT cut_at), count(DISTINCT data_timestamp) FROM millstream.stream_tables"
        assert writer.execute(cut_at).fetchone() == (1, 1)
        assert reports["a"].data_timestamp == reports["b"].data_timestamp


# -- without Spark ---------------------------------------------------------------------------


def test_one_that_is_forgotten_meanwhile_is_no_error(
    database: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug: a request changed a stream table while another application looked for work:
    KeyError.
    """
    conn.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with millstream.connect(database) as ms:
        for name in ("a", "b"):
            ms.create_stream_table(name, "SELECT id FROM t", initialize=False)
        first, second = (
            replace(
                table,
                frontier=Snapshot.parse("1:1:"),
                reads_clock=False,
                planned_by=version_stamp(),
            )
            for table in stream_tables.every(ms.app.conn)
        )
        ms.app.forget(first.id)
        ms.app.forget(second.id)
        ms.app.unplanned([first])
        every = upstreams.every

        def forgetting(conn: Connection) -> Any:  # as it comes
            ms.app.forget(first.id)
            return every(conn)

        monkeypatch.setattr(upstreams, "every", forgetting)
        assert ms.app.unplanned([first, second]) == {}, (
            "they stand on nothing before they are filled"
        )


def test_a_former_leader_that_has_lost_its_session_opens_no_other_one(
    database: str, conn: Connection
) -> None:
    """The bug: the new leader had ended its sessions, and it went on in a new one."""
    with millstream.connect(database) as ms:
        ms.app.epoch = leadership.take_over(conn, uuid4())
        lost = ms.app.conn
        lost.close()
        ms.app.reach()
        assert ms.app.conn is not lost
        leadership.take_over(conn, uuid4())
        ms.app.conn.close()
        for _ in range(2):
            with pytest.raises(Deposed):
                ms.app.reach()


def test_spark_is_started_with_the_settings(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict[str, str]()
    monkeypatch.setattr(session, "_session", given.update)
    monkeypatch.setattr(session, "prepare", lambda spark: spark)
    settings = Settings(
        spark_master="local[3]", spark_driver_memory="512MB", spark_conf={"spark.ui.port": "4050"}
    )
    with millstream.connect(database, settings=settings) as ms:
        ms.app._start()
    found = {name: given[name] for name in ("spark.master", "spark.driver.memory", "spark.ui.port")}
    assert found == {
        "spark.master": "local[3]",
        "spark.driver.memory": "512m",
        "spark.ui.port": "4050",
    }
