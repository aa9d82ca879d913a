"""A stream table whose plan is no longer the one it was made with starts over, and is exact from
then on.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import millstream
from millstream import Millstream

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, a int, b int);
    INSERT INTO t SELECT n, n % 5, n % 7 FROM generate_series(1, 50) AS n;
    CREATE VIEW v AS SELECT a, b::bigint AS n FROM t WHERE b > 1;
"""
SHAPES = [
    "SELECT a, count(*) AS n FROM t GROUP BY a",
    "SELECT DISTINCT a, b::bigint AS n FROM t",
    "SELECT a, sum(b) OVER (PARTITION BY a) AS n FROM t",
    "SELECT a, max(b)::bigint AS n FROM t WHERE id > 3 GROUP BY a",
]


@pytest.fixture
def writer(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
        yield conn


@pytest.mark.parametrize("shape", SHAPES)
def test_a_view_that_was_replaced_by_another_shape(
    database: str, writer: psycopg.Connection, shape: str
) -> None:
    with millstream.connect(database) as ms:
        ms.create_stream_table(
            "st", "SELECT a, sum(n) AS total, count(*) AS k FROM v GROUP BY a", schedule="1h"
        )
        writer.execute("UPDATE t SET b = 3 WHERE id = 7")
        assert ms.refresh("st").action == "DIFFERENTIAL"
        writer.execute(f"CREATE OR REPLACE VIEW v AS {shape}")
        assert ms.refresh("st").action in ("FULL", "REINITIALIZE")
        _goes_on(ms, writer)


def test_blocks_planned_by_another_version_are_created_again(
    database: str, writer: psycopg.Connection
) -> None:
    with millstream.connect(database) as ms:
        ms.create_stream_table(
            "st", "SELECT a, max(b) AS m, array_agg(b ORDER BY b) AS n FROM t GROUP BY a"
        )
    # As an older version left it: its state has other columns, and its plan reads otherwise.
    writer.execute("UPDATE millstream.blocks SET plan = 'Block result, as it used to be'")
    writer.execute("UPDATE millstream.stream_tables SET planned_by = 'an older version'")
    writer.execute("DO $$ BEGIN EXECUTE (SELECT format('ALTER TABLE %s DROP COLUMN v0', state_relid::regclass) "
                   "FROM millstream.blocks); END $$")  # fmt: skip
    with millstream.connect(database) as ms:
        assert ms.refresh("st").reason == "PLANNED_ANEW"
        _goes_on(ms, writer)


def _goes_on(ms: Millstream, writer: psycopg.Connection) -> None:
    assert ms.verify("st").ok
    writer.execute(
        "INSERT INTO t VALUES (100, 2, 6); DELETE FROM t WHERE id = 12; UPDATE t SET a = 1 WHERE id = 20"
    )
    assert ms.refresh("st").action == "DIFFERENTIAL"
    assert ms.verify("st").ok
