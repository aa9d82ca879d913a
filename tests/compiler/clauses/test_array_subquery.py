"""ARRAY(subquery): of any query, tied to the row around or not, in its order."""

from __future__ import annotations

import pytest
from tests.law.conftest import Law, law

__all__ = ["law"]  # a fixture

QUERIES = {
    "alone": "SELECT id, ARRAY(SELECT v FROM t ORDER BY v DESC, id) AS a FROM k",
    "over a join": "SELECT ARRAY(SELECT t.id FROM t JOIN k ON k.id = t.g ORDER BY t.id) AS a FROM k",
    "over an aggregate": "SELECT id, ARRAY(SELECT true FROM (SELECT avg(v) FROM t) AS q) AS a FROM k",
    "tied by an equality": "SELECT id, ARRAY(SELECT t.id FROM t WHERE t.g = k.id ORDER BY t.v DESC, t.id) AS a FROM k",
    "tied by more": "SELECT id, ARRAY(SELECT t.id FROM t WHERE t.g > k.id ORDER BY t.id) AS a FROM k",
    "tied by its select list": "SELECT id, ARRAY(SELECT t.v + k.id FROM t ORDER BY t.id) AS a FROM k",
    "each once": "SELECT id, ARRAY(SELECT DISTINCT t.g FROM t WHERE t.id > k.id ORDER BY t.g DESC) AS a FROM k",
    "limited": "SELECT id, ARRAY(SELECT t.id FROM t WHERE t.g = k.id ORDER BY t.v, t.id LIMIT 2) AS a FROM k",
    "united": "SELECT id, ARRAY(SELECT id FROM t UNION SELECT id FROM k ORDER BY 1) AS a FROM k",
    "of groups": "SELECT id, ARRAY(SELECT count(*) FROM t GROUP BY g ORDER BY g) AS a FROM k",
    "of functions' rows": "SELECT id, ARRAY(SELECT generate_series(1, k.id)) AS a FROM k",
    "of arrays": "SELECT id, ARRAY(SELECT ARRAY[t.id, t.v] FROM t WHERE t.g = k.id ORDER BY t.id) AS a FROM k",
    "in a condition": "SELECT id FROM k WHERE cardinality(ARRAY(SELECT t.id FROM t WHERE t.g = k.id)) > 1",
    "nested": "SELECT id, ARRAY(SELECT cardinality(ARRAY(SELECT u.id FROM t AS u WHERE u.g = t.id)) FROM t "
    "WHERE t.g = k.id ORDER BY t.id) AS a FROM k",
    "= ANY": "SELECT id FROM k WHERE id = ANY (ARRAY(SELECT v FROM t))",
    "<> ALL": "SELECT id, id <> ALL (ARRAY(SELECT g FROM t)) AS a FROM k",
    "< ANY, tied": "SELECT id, id < ANY (ARRAY(SELECT v FROM t WHERE t.g = k.id)) AS a FROM k",
}


@pytest.mark.spark
def test_arrays_of_subqueries_are_maintained(law: Law) -> None:
    """They were refused for a reason that misled (parentheses around a join), or raised an internal
    error.
    """
    law.change("""
        CREATE TABLE k (id int PRIMARY KEY);
        CREATE TABLE t (id int PRIMARY KEY, g int, v int);
        INSERT INTO k SELECT generate_series(0, 4);
        INSERT INTO t SELECT n, n % 4, n * 7 % 5 FROM generate_series(1, 12) AS n
    """)
    changes = [
        "INSERT INTO t VALUES (20, 4, 3), (21, NULL, NULL), (22, 3, 3); UPDATE t SET v = -1 WHERE id = 5",
        "DELETE FROM t WHERE g = 3; INSERT INTO k VALUES (9)",
    ]
    law.holds_for(QUERIES, changes)
