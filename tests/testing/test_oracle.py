"""The oracle notices every kind of difference, and takes no equal things for different ones."""

from __future__ import annotations

import pytest

from millstream.postgres.connection import Connection
from millstream.testing import oracle

QUERY = "SELECT v.a, v.b, v.c FROM (VALUES (1, 'x', 1.50), (1, 'x', 1.50), (2, NULL, NULL)) AS v (a, b, c)"


@pytest.fixture
def kept(conn: Connection) -> Connection:
    conn.execute(f"CREATE TABLE kept AS {QUERY}")
    return conn


def test_a_table_that_equals_its_query_passes_with_its_number_of_rows(kept: Connection) -> None:
    assert oracle.check(kept, QUERY, "kept") == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DELETE FROM kept WHERE a = 2", "- ('2', None, None)"),
        ("INSERT INTO kept VALUES (3, 'y', 0)", "+ ('3', 'y', '0')"),
        (
            "DELETE FROM kept WHERE ctid = (SELECT min(ctid) FROM kept)",
            "1 rows missing, 0 rows too many",
        ),
        ("INSERT INTO kept VALUES (1, 'x', 1.50)", "0 rows missing, 1 rows too many"),
        ("UPDATE kept SET b = '' WHERE b IS NULL", "+ ('2', '', None)"),
        ("ALTER TABLE kept ALTER a TYPE bigint", "a bigint"),
        ("ALTER TABLE kept ALTER c TYPE numeric(5,2)", "numeric(5,2)"),
        ('ALTER TABLE kept ALTER b TYPE text COLLATE "C"', 'b text COLLATE "C"'),
        ("ALTER TABLE kept RENAME b TO d", "d text"),
        ("ALTER TABLE kept ADD e int", "e integer"),
    ],
)
def test_a_difference_is_reported(kept: Connection, change: str, says: str) -> None:
    kept.execute(change.encode())
    with pytest.raises(AssertionError) as trouble:
        oracle.check(kept, QUERY, "kept")
    assert says in str(trouble.value)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE kept SET c = 1.5 WHERE a = 1",
        "ALTER TABLE kept ADD __ms_row_id bytea",
        "UPDATE kept SET a = a",
    ],
)
def test_what_is_equal_is_not_a_difference(kept: Connection, change: str) -> None:
    kept.execute(change.encode())
    assert oracle.check(kept, QUERY, "kept") == 3


def test_floats_may_differ_by_little_where_that_is_allowed(conn: Connection) -> None:
    query = "SELECT 1 AS g, 0.3::float8 AS f, '-0'::float8 AS zero"
    conn.execute(
        "CREATE TABLE kept AS SELECT 1 AS g, 0.1::float8 + 0.2::float8 AS f, 0::float8 AS zero"
    )
    assert oracle.check(conn, query, "kept", close=1e-12) == 1
    with pytest.raises(AssertionError, match=r"0\.30000000000000004"):
        oracle.check(conn, query, "kept")
    conn.execute("UPDATE kept SET g = 2")
    with pytest.raises(AssertionError):
        oracle.check(conn, query, "kept", close=1e-12)


def test_the_oracle_leaves_nothing_behind(kept: Connection) -> None:
    oracle.check(kept, QUERY, "kept")
    assert kept.execute("SELECT FROM pg_class WHERE relname = 'oracle_query'").fetchall() == []
