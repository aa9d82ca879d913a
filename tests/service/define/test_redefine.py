"""A stream table that gets another query has the former rows, then those of the new query, and
nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from threading import Event, Thread

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.service.run.conftest import serving, wait_for_leader

from millstream import Millstream
from millstream.catalog import sources
from millstream.errors import BadQuery, Cycle, MillstreamError, SourceChanged
from millstream.testing import oracle
from millstream.testing.waiting import wait_until

pytestmark = pytest.mark.spark


TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, g int, v int, w text);
    CREATE TABLE u (g int PRIMARY KEY, name text);
    INSERT INTO t SELECT i, i % 3, i, 'w' || i % 2 FROM generate_series(1, 9) AS i;
    INSERT INTO u VALUES (0, 'zero'), (1, 'one')
"""


# Each from the one before: another filter, columns, types, keys, sources; and back.
QUERIES = [
    "SELECT g, sum(v) AS total, count(*) AS n FROM t WHERE v > 2 GROUP BY g",
    "SELECT g, sum(v)::text AS total FROM t GROUP BY g",
    'SELECT w, g, max(v) AS "Max", min(v) AS total FROM t GROUP BY w, g',
    "SELECT w FROM t",
    "SELECT t.id, u.name FROM t LEFT JOIN u ON u.g = t.g",
    "SELECT count(*) AS id FROM u",
    "SELECT g, n FROM (SELECT g, count(*) AS n, max(v) AS m FROM t GROUP BY g) AS q WHERE m > 4",
    "SELECT g, sum(v) AS total, count(*) AS n FROM t GROUP BY g",
]


CHANGE = "INSERT INTO t VALUES ({n}, 1, 5, 'w1'); UPDATE t SET v = v + 1 WHERE id = 2; UPDATE u SET name = name || 'x'"


@pytest.fixture
def writer(writer: psycopg.Connection) -> psycopg.Connection:
    writer.execute(TABLES)
    return writer


def test_a_stream_table_gets_one_query_after_the_other(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    ms.create_stream_table("st", QUERIES[-1])
    ms.create_stream_table("reader", "SELECT count(*) AS n FROM st")
    oid = writer.execute("SELECT 'st'::regclass::oid").fetchall()
    writer.execute("GRANT SELECT ON st TO PUBLIC; COMMENT ON TABLE st IS 'ours'")
    for n, query in enumerate(QUERIES):
        writer.execute(CHANGE.format(n=20 + 2 * n).encode())
        report = ms.alter_stream_table("st", query=query)
        assert report is not None
        assert (report.action, report.reason) == ("REINITIALIZE", "QUERY_CHANGED")
        oracle.check(ms.app.conn, query, "st")
        read = {source.name for source in sources.read_by(ms.app.conn, ms.app.named("st").id)}
        assert read == {name for name in ("t", "u") if f"{name} " in f"{query} "}
        writer.execute(CHANGE.format(n=21 + 2 * n).encode())
        assert {done.name: done.action for done in ms.refresh_all()}["st"] == "DIFFERENTIAL"
        assert ms.verify("st").ok
        assert ms.verify("reader").ok
    assert writer.execute("SELECT 'st'::regclass::oid").fetchall() == oid
    kept = "SELECT obj_description(oid, 'pg_class'), has_table_privilege('public', oid, 'SELECT') FROM pg_class"
    assert writer.execute(f"{kept} WHERE oid = 'st'::regclass".encode()).fetchall() == [
        ("ours", True)
    ]
    assert {source.name for source in sources.every(ms.app.conn)} == {"t", "st"}


def test_what_cannot_be_done_changes_nothing(ms: Millstream, writer: psycopg.Connection) -> None:
    ms.create_stream_table("st", QUERIES[0])
    ms.create_stream_table("reader", "SELECT count(*) AS n FROM st")
    writer.execute("CREATE VIEW shown AS SELECT n FROM st")
    refused: dict[str, type[MillstreamError]] = {
        "SELECT nothing FROM t": BadQuery,
        "SELECT n FROM reader": Cycle,
        "SELECT g, name FROM u": SourceChanged,
        "SELECT g, sum(v) AS total, 10 / (count(*) - count(*)) AS n FROM t GROUP BY g": MillstreamError,
    }
    before = ms.app.named("st")
    for query, error in refused.items():
        with pytest.raises(error):
            ms.alter_stream_table("st", query=query)
        after = ms.app.named("st")
        assert (after.query, after.frontier, after.row_key) == (
            before.query,
            before.frontier,
            before.row_key,
        )
        assert {source.name for source in sources.every(ms.app.conn)} == {"t", "st"}
        oracle.check(ms.app.conn, QUERIES[0], "st")
    writer.execute(CHANGE.format(n=20).encode())
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, QUERIES[0], "st")


# Each with the columns that the reader reads: other rows, another type, another key, one more
# column; and back.
SWAPS = [
    "SELECT g, sum(v) AS total FROM t GROUP BY g",
    "SELECT g, sum(v) AS total FROM t WHERE v > 2 GROUP BY g",
    "SELECT g, sum(v)::text AS total FROM t GROUP BY g",
    "SELECT w, g, sum(v) AS total FROM t GROUP BY w, g",
    "SELECT g, sum(v) AS total, min(v) AS least FROM t WHERE v > 1 GROUP BY g",
    "SELECT g, sum(v) AS total FROM t GROUP BY g",
]
COUNTED = "SELECT count(*) AS n, min(total::numeric) AS least FROM {st}"


class Reading:
    """A session that reads in a loop, and what it has seen."""

    def __init__(self, dsn: str, queries: Sequence[str]) -> None:
        self.seen: dict[str, list[object]] = {query: [] for query in queries}
        self.error: BaseException | None = None
        self._dsn = dsn
        self._stop = Event()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert self.error is None, self.error

    def _read(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True, prepare_threshold=None) as conn:
                while not self._stop.is_set():
                    for query, seen in self.seen.items():
                        found = rows(conn, query)
                        if seen[-1:] != [found]:
                            seen.append(found)
        except BaseException as error:
            self.error = error


def rows(conn: psycopg.Connection, query: str) -> object:
    whole = "SELECT jsonb_agg(to_jsonb(q) - '__ms_row_id' ORDER BY to_jsonb(q) - '__ms_row_id') FROM ({}) AS q"
    return conn.execute(whole.format(query).encode()).fetchall()[0][0]


def test_readers_at_work_see_the_former_rows_then_the_new_ones_and_nothing_else(
    database: str, spark: SparkSession, writer: psycopg.Connection
) -> None:
    """Sessions that select, and a stream table that reads, while a service gives one query after
    the other.
    """
    writer.prepare_threshold = None

    def asked(call: str) -> None:
        [(request,)] = writer.execute(f"SELECT millstream.{call}".encode()).fetchall()
        writer.execute(f"CALL millstream.wait_for({request}, '90 s')".encode())

    with serving(database, spark, scheduler_interval="50ms", verify_budget=0):
        wait_for_leader(database)
        asked(f"create_stream_table('st', $${SWAPS[0]}$$, schedule => '200ms')")
        asked(f"create_stream_table('reader', $${COUNTED.format(st='st')}$$, schedule => '200ms')")
        for former, new in pairwise(SWAPS):
            reading = Reading(database, ["TABLE st", "TABLE reader"])
            asked(f"alter_stream_table('st', query => $${new}$$)")
            last = rows(writer, COUNTED.format(st=f"({new}) AS q"))
            wait_until(lambda last=last: rows(writer, "TABLE reader") == last)  # type: ignore[misc]  # no name for it
            reading.stop()
            wanted = {"TABLE st": [rows(writer, former), rows(writer, new)]}
            wanted["TABLE reader"] = [
                rows(writer, COUNTED.format(st=f"({query}) AS q")) for query in (former, new)
            ]
            for query, seen in reading.seen.items():
                assert seen in (wanted[query], wanted[query][:1], wanted[query][1:]), (new, query)
