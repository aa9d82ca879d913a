"""Cost follows the change: in a tree of 100,000 rows, a leaf that moves reads a handful of rows."""

from __future__ import annotations

import psycopg
import pytest

import millstream
from millstream.refresh.report import RefreshReport

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# Each node has eight children; the last 87,500 are leaves.
TABLES = """
    CREATE TABLE nodes (id int PRIMARY KEY, parent int, name text);
    INSERT INTO nodes SELECT n, nullif((n + 6) / 8, 0), 'n' || n FROM generate_series(1, 100000) AS n;
    CREATE INDEX ON nodes (parent);
    ANALYZE;
"""
QUERIES = {
    "st_all": "WITH RECURSIVE t AS (SELECT id, 0 AS depth, ARRAY[id] AS path FROM nodes WHERE parent IS NULL UNION ALL "
    "SELECT n.id, t.depth + 1, t.path || n.id FROM t JOIN nodes AS n ON n.parent = t.id) SELECT id, depth, path FROM t",
    "st_each": "WITH RECURSIVE t AS (SELECT id, 0 AS depth FROM nodes WHERE parent IS NULL UNION "
    "SELECT n.id, t.depth + 1 FROM t JOIN nodes AS n ON n.parent = t.id) SELECT id, depth FROM t",
    # From the last nodes on, so that what changes is among the first.
    "st_search": "WITH RECURSIVE t AS (SELECT id, 0 AS depth FROM nodes WHERE parent IS NULL UNION ALL "
    "SELECT n.id, t.depth + 1 FROM t JOIN nodes AS n ON n.parent = t.id) SEARCH BREADTH FIRST BY id SET seq "
    "CYCLE id SET again USING path SELECT id, depth, again FROM t ORDER BY seq DESC LIMIT 5",
}
CHANGES = {
    "a leaf moves": ("UPDATE nodes SET parent = 17 WHERE id = 99999", 24),
    "a leaf goes, another comes": (
        "DELETE FROM nodes WHERE id = 99998; INSERT INTO nodes VALUES (200000, 9, 'x')",
        24,
    ),
    # With it eight children and 64 of theirs, to another depth.
    "a small branch moves": ("UPDATE nodes SET parent = 3 WHERE id = 1500", 700),
}


def test_what_moves_is_read_and_little_else(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn, millstream.connect(database) as ms:
        conn.execute(TABLES)
        for name, query in QUERIES.items():
            ms.create_stream_table(name, query, schedule="1h", refresh_mode="DIFFERENTIAL")
        changed = set[str]()
        for what, (change, most) in CHANGES.items():
            conn.execute(change)
            reports = ms.refresh_all()
            assert [one for one in reports if not _cheap(one, most)] == [], what
            changed |= {one.name for one in reports if one.rows_changed}
        assert [name for name in QUERIES if not ms.verify(name).ok] == []
        assert changed == set(QUERIES)


def _cheap(report: RefreshReport, most: int) -> bool:
    return (
        report.action == "DIFFERENTIAL"
        and report.rows_changed <= report.rows_read <= most
        and report.rows_read > 0
    )
