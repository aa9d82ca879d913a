"""A stream table that gets another query has the former rows, then those of the new query, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millstream import Millstream
from millstream.catalog import sources
from millstream.errors import BadQuery, Cycle, MillstreamError, SourceChanged
from millstream.testing import oracle

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
def writer(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
        yield conn


def test_a_stream_table_gets_one_query_after_the_other(ms: Millstream, writer: psycopg.Connection) -> None:
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
    assert writer.execute(f"{kept} WHERE oid = 'st'::regclass".encode()).fetchall() == [("ours", True)]
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
        assert (after.query, after.frontier, after.row_key) == (before.query, before.frontier, before.row_key)
        assert {source.name for source in sources.every(ms.app.conn)} == {"t", "st"}
        oracle.check(ms.app.conn, QUERIES[0], "st")
    writer.execute(CHANGE.format(n=20).encode())
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, QUERIES[0], "st")
