"""Subqueries: NOT IN with NULLs, EXISTS, counts of nothing.

Most are bugs that other systems had, or that the law found in this one.
"""

from __future__ import annotations

import pytest
from tests.law.conftest import SHOP, TWO_CHANGES, TWO_TABLES, Law, Lawful

from millstream.errors import MillstreamError

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "where", ["", " WHERE o.status IS DISTINCT FROM c.region"], ids=["alone", "tied"]
)
def test_not_in_with_nulls_about_is_no_anti_join(lawful: Lawful, where: str) -> None:
    lawful(
        SHOP,
        f"""SELECT c.id, c.credit NOT IN (SELECT o.customer FROM orders AS o{where}) AS missing
            FROM customers AS c WHERE coalesce(c.credit NOT IN (SELECT o.customer FROM orders AS o{where}), true)""",
        "DELETE FROM orders WHERE customer IN (2, 3)",
        "INSERT INTO orders VALUES (60, NULL, 1, NULL)",
        "UPDATE customers SET credit = NULL WHERE id < 4",
        "DELETE FROM orders WHERE customer IS NULL",
        "DELETE FROM orders",
        "INSERT INTO orders VALUES (61, NULL, 1, 'x')",
    )


@pytest.mark.parametrize("which", ["EXISTS", "NOT EXISTS"])
def test_only_the_first_and_the_last_partner_matter(lawful: Lawful, which: str) -> None:
    lawful(
        SHOP,
        f"""SELECT c.id FROM customers AS c
            WHERE {which} (SELECT 1 FROM orders AS o WHERE o.customer = c.id AND o.amount > c.credit)""",
        "DELETE FROM orders WHERE customer = 2 AND id > 12",
        """DELETE FROM orders WHERE customer = 2;
           INSERT INTO orders VALUES (70, 2, 99, NULL); DELETE FROM orders WHERE id = 70""",
        "UPDATE customers SET credit = 100 WHERE id = 4; UPDATE orders SET amount = 101 WHERE id = 3",
        "UPDATE orders SET customer = 2 WHERE customer = 4; UPDATE customers SET id = 40 WHERE id = 4",
    )


def test_a_count_of_nothing_is_zero_and_a_sum_of_nothing_is_null(lawful: Lawful) -> None:
    lawful(
        SHOP,
        """SELECT c.id, (SELECT count(*) FROM orders AS o WHERE o.customer = c.id) AS n,
               (SELECT sum(o.amount) FROM orders AS o WHERE o.customer = c.id) AS total,
               (SELECT coalesce(max(o.amount), -1) FROM orders AS o WHERE o.customer = c.id AND o.id > 9) AS most,
               (SELECT max(o.amount) FROM orders AS o) AS of_all
           FROM customers AS c WHERE c.credit <= (SELECT count(*) + 3 FROM orders AS o WHERE o.customer = c.id)""",
        "DELETE FROM orders WHERE customer IN (1, 5)",
        "UPDATE orders SET customer = 1, amount = NULL WHERE customer = 2",
        "UPDATE customers SET id = id + 1000 WHERE id > 5; INSERT INTO orders VALUES (80, 1006, 500, 'open')",
        "DELETE FROM orders",
    )


SUBQUERIES = {
    "x <> ALL of a subquery was not known, and planning ended in a KeyError": """
        SELECT id, x, x <> ALL (SELECT z FROM b WHERE ok) AS another FROM a
        WHERE coalesce(x <> ALL (SELECT y FROM b), true)""",
    "a constant inside EXISTS or an outer join was a column of a table that stands outside": """
        SELECT a.id, q.id AS other FROM a LEFT JOIN (SELECT b.id, b.y FROM b WHERE NOT (b.z IN (SELECT x FROM a))) AS q
        ON a.x = q.y
        WHERE EXISTS (SELECT 1 FROM b WHERE b.y = a.x AND NOT (2 IN (SELECT z FROM b AS c WHERE c.ok)))""",
    "a set operation in a subquery did not see the CTEs around it": """
        WITH w AS (SELECT id, x FROM a WHERE x > 0)
        SELECT b.id FROM b
        WHERE EXISTS (SELECT 1 FROM (SELECT x FROM w EXCEPT SELECT z FROM b) AS e WHERE e.x = b.y)""",
}


@pytest.mark.parametrize("bug", SUBQUERIES)
def test_subqueries_that_were_wrong_are_right(lawful: Lawful, bug: str) -> None:
    lawful(TWO_TABLES, SUBQUERIES[bug], *TWO_CHANGES)


ARRAYS = """
    CREATE TABLE t (id int PRIMARY KEY, a int, b int, arr int[], s text);
    CREATE TABLE u (id int PRIMARY KEY, a int, b int);
    INSERT INTO t SELECT i, nullif(i % 4, 3), nullif(i % 5, 4), ARRAY[i % 3, nullif(i % 4, 1)], 's' || i % 3
        FROM generate_series(1, 8) AS i;
    INSERT INTO t VALUES
        (9, 1, 2, NULL, NULL), (10, 1, 2, '{}', 's1'), (11, 2, NULL, '{2,2}', ''), (13, 0, 0, '{{0,1}}', 's');
    INSERT INTO u SELECT i, nullif(i % 3, 4), nullif(i % 5, 3) FROM generate_series(1, 9) AS i;
    INSERT INTO u VALUES (10, 1, NULL), (11, NULL, 1), (12, 1, 2), (13, 1, 2);
"""


def test_a_key_that_is_any_of_several_is_not_one_row(law: Law) -> None:
    """It was taken for an equality, and the subquery for one of one row at most: each row stood
    there twice.
    """
    law.change(ARRAYS)
    law.create("kept", "SELECT t.id, (SELECT u.b FROM u WHERE u.id IN (1, 99)) AS b FROM t")
    law.change("INSERT INTO u VALUES (99, 1, 1)")
    law.ms.app.witness = None
    with pytest.raises(MillstreamError, match="more than one row"):
        law.ms.refresh("kept")
