"""GROUPING SETS in places where a key's type is not easily told."""

from __future__ import annotations

import pytest
from tests.law.conftest import Law, law

__all__ = ["law"]  # a fixture

QUERIES = {
    "of an outer column": "SELECT i.id, (SELECT count(*) FROM (SELECT i.id FROM t GROUP BY ROLLUP (i.id)) AS x) AS n "
    "FROM z AS i",
    "of an outer column and an own one": "SELECT i.id, x.* FROM z AS i CROSS JOIN LATERAL "
    "(SELECT t.g, i.d AS e, count(*) AS n FROM t GROUP BY CUBE (t.g, i.d)) AS x",
    "of an outer column in an expression": "SELECT i.id, x.* FROM z AS i CROSS JOIN LATERAL "
    "(SELECT t.g + i.d AS e, sum(t.v) AS n FROM t GROUP BY GROUPING SETS ((t.g + i.d), ())) AS x",
    "the empty set alone": "SELECT max(v) AS m FROM t GROUP BY () HAVING count(*) <> 3",
    "the empty set without an aggregate": "SELECT 1 AS x FROM t GROUP BY (), ()",
    "the empty set of an outer column": "SELECT i.id, (SELECT count(*) FROM t WHERE t.g = i.d GROUP BY ()) AS n "
    "FROM z AS i",
}


@pytest.mark.spark
def test_keys_may_be_columns_of_the_query_around(law: Law) -> None:
    """The server was asked for the type of an outer column without the query around: missing
    FROM-clause entry.
    """
    law.change("""
        CREATE TABLE z (id int PRIMARY KEY, d int);
        CREATE TABLE t (id int PRIMARY KEY, g int, v int);
        INSERT INTO z SELECT n, n % 3 FROM generate_series(1, 5) AS n;
        INSERT INTO t SELECT n, n % 2, n FROM generate_series(1, 7) AS n
    """)
    law.holds_for(
        QUERIES,
        ["INSERT INTO t VALUES (20, 5, 5); UPDATE z SET d = 7 WHERE id = 1", "DELETE FROM t"],
    )


DISTINCT_SETS = {
    "rollup and cube": "SELECT g, v, count(*) AS n FROM t GROUP BY DISTINCT ROLLUP (g, v), CUBE (v)",
    "in another order": "SELECT g, v, grouping(g, v) AS i FROM t GROUP BY DISTINCT GROUPING SETS ((g, v), (v, g), (g))",
    "equal expressions": "SELECT g + 1 AS e, sum(v) AS n FROM t GROUP BY DISTINCT ROLLUP (g + 1), ROLLUP ((g + 1))",
    "not asked for": "SELECT g, v, count(*) AS n FROM t GROUP BY ROLLUP (g, v), CUBE (v)",
    "all asked for": "SELECT g, v, count(*) AS n FROM t GROUP BY ALL ROLLUP (g, v), CUBE (v)",
    "a plain list": "SELECT g, count(*) AS n FROM t GROUP BY DISTINCT g",
}


@pytest.mark.spark
def test_group_by_distinct_has_each_set_once(law: Law) -> None:
    """DISTINCT was not seen: rows of a set that ROLLUP and CUBE both give were there twice.

    A random query found it.
    """
    law.change("""
        CREATE TABLE t (id int PRIMARY KEY, g int, v int);
        INSERT INTO t SELECT n, n % 2, n % 3 FROM generate_series(1, 7) AS n
    """)
    law.holds_for(
        DISTINCT_SETS,
        ["INSERT INTO t VALUES (20, 5, 5), (21, NULL, 1)", "DELETE FROM t WHERE g = 1"],
    )


@pytest.mark.spark
def test_a_key_that_a_subquery_asks_for_is_null_in_the_sets_without_it(law: Law) -> None:
    """The server writes the key of the one table `k`, and in the subquery `t.k`: the total had a
    row for each key.
    """
    law.change(
        "CREATE TABLE t (id int PRIMARY KEY, k int, n int); CREATE TABLE u (k int, x int);"
        "INSERT INTO t SELECT v, v % 3, v FROM generate_series(1, 9) AS v; INSERT INTO u VALUES (0, 5), (1, 6), (1, 7)"
    )
    value = "(SELECT max(u.x) FROM u WHERE u.k = {}) AS x"
    law.holds_for(
        {
            "column": f"SELECT t.k, sum(t.n) AS n, {value.format('t.k')} FROM t GROUP BY ROLLUP (t.k)",
            "two keys": f"SELECT t.k, t.n % 2 AS m, count(*) AS c, {value.format('t.k')} FROM t "
            "GROUP BY CUBE (t.k, t.n % 2)",
        },
        [
            "INSERT INTO t VALUES (20, 1, 1); INSERT INTO u VALUES (2, 9)",
            "DELETE FROM t WHERE k = 0",
        ],
    )
