"""Outer joins: null-extended rows come and go with the last match.

Most are bugs that other systems had, or that the law found in this one.
"""

from __future__ import annotations

import pytest
from tests.law.conftest import SHOP, Lawful

pytestmark = pytest.mark.spark


OUTER = "SELECT c.id, o.id AS its, c.region, o.amount FROM customers AS c {} JOIN orders AS o ON o.customer = c.id"


outer = pytest.mark.parametrize("kind", ["LEFT", "RIGHT", "FULL"])


@outer
def test_deleting_both_sides_of_an_outer_join_leaves_no_null_extended_row(
    lawful: Lawful, kind: str
) -> None:
    lawful(
        SHOP,
        OUTER.format(kind),
        "DELETE FROM orders WHERE customer = 3; DELETE FROM customers WHERE id = 3",
        "DELETE FROM customers WHERE id = 4; INSERT INTO customers VALUES (3, 'back', 1)",
        "INSERT INTO customers VALUES (4, 'back', 1); DELETE FROM orders WHERE customer = 4",
    )


@outer
def test_a_null_extended_row_disappears_with_the_first_match_and_returns_after_the_last(
    lawful: Lawful, kind: str
) -> None:
    lawful(
        SHOP,
        OUTER.format(kind),
        """INSERT INTO customers VALUES (20, 'lonely', 1);
           INSERT INTO orders VALUES (90, 30, 1, NULL), (91, NULL, 1, NULL)""",
        "INSERT INTO orders VALUES (92, 20, 5, 'open'), (93, 20, 6, 'open')",
        "DELETE FROM orders WHERE id = 92",
        "UPDATE orders SET customer = 21 WHERE id = 93; UPDATE customers SET id = 30 WHERE id = 20",
        "DELETE FROM orders; INSERT INTO orders VALUES (1, 1, 1, NULL)",
        "DELETE FROM customers",
    )


@pytest.mark.parametrize(
    "measure", ["min(s.weight)", "max(s.weight)", "count(s.id)", "sum(o.amount)"]
)
def test_extremes_over_two_chained_left_joins_enter_a_group_that_is_there(
    lawful: Lawful, measure: str
) -> None:
    """#938: the new row of the second join was taken for a row of the first."""
    lawful(
        SHOP + "CREATE TABLE shipments (id int PRIMARY KEY, of_order int, weight int);"
        "INSERT INTO shipments SELECT i, i * 2, i % 7 FROM generate_series(1, 12) AS i",
        f"""SELECT c.region, {measure} AS measure FROM customers AS c LEFT JOIN orders AS o ON o.customer = c.id
            LEFT JOIN shipments AS s ON s.of_order = o.id GROUP BY c.region""",
        "INSERT INTO shipments VALUES (50, 1, -9), (51, 3, 99)",
        "INSERT INTO orders VALUES (80, 1, 1, NULL); INSERT INTO shipments VALUES (52, 80, 1000)",
        "DELETE FROM shipments WHERE id IN (50, 52); DELETE FROM orders WHERE id = 3",
        "DELETE FROM shipments; UPDATE customers SET region = 'one'",
    )


def test_a_default_above_an_outer_join_is_not_a_default_below_it(lawful: Lawful) -> None:
    lawful(
        SHOP,
        """SELECT c.id, q.word, coalesce(q.word, 'nobody') AS shown FROM customers AS c
           LEFT JOIN (SELECT customer, coalesce(status, 'none') AS word FROM orders WHERE amount > 30) AS q
           ON q.customer = c.id""",
        "UPDATE orders SET status = NULL WHERE id > 35",
        "UPDATE orders SET amount = 1 WHERE customer = 2; UPDATE orders SET amount = 31 WHERE customer = 1",
    )


def test_outer_joins_over_a_full_join(lawful: Lawful) -> None:
    """Spark's inferred filters lost a column that the statement still asked for."""
    lawful(
        """CREATE TABLE a (id int PRIMARY KEY, x int, y int, v numeric);
           CREATE TABLE b (x int, y int);
           CREATE TABLE c (x int, y int, w text);
           CREATE TABLE d (id int PRIMARY KEY, x int, y int);
           INSERT INTO a SELECT n, n % 20, n % 4, n FROM generate_series(1, 60) AS n;
           INSERT INTO b SELECT n % 20, n % 4 FROM generate_series(1, 60) AS n;
           INSERT INTO c SELECT n % 20, n % 3, 'w' || n % 5 FROM generate_series(1, 60) AS n;
           INSERT INTO d SELECT n, n % 20, n % 4 FROM generate_series(1, 60) AS n""",
        """SELECT a.id, b.y, c.w, d.id AS other
           FROM a FULL JOIN b ON a.x = b.x AND a.y = b.y AND a.x > b.y LEFT JOIN c ON b.x = c.x AND b.y > c.y
           RIGHT JOIN d ON b.x = d.x AND b.y = d.y""",
        "UPDATE d SET y = (y + 1) % 4 WHERE id < 9; UPDATE a SET y = (y + 1) % 4 WHERE id < 7",
        "DELETE FROM b WHERE y = 1 AND x < 9",
    )


def test_steps_that_number_their_rows_and_are_used_twice(lawful: Lawful) -> None:
    """Spark took their columns in another order than they were asked for, and did not find one."""
    lawful(
        """CREATE TABLE a (id int PRIMARY KEY, h int); CREATE TABLE b (id int PRIMARY KEY, j int, h int);
           CREATE TABLE c (j int, h int, v int); CREATE TABLE d (j int, h bigint, g text, n numeric, c text);
           INSERT INTO a SELECT n, n % 4 FROM generate_series(1, 9) AS n;
           INSERT INTO b SELECT n, n % 5, n % 3 FROM generate_series(1, 9) AS n;
           INSERT INTO c SELECT n % 5, n % 4, n % 3 FROM generate_series(1, 9) AS n;
           INSERT INTO d SELECT n % 4, n % 3, 'g' || n % 3, n, CASE WHEN n % 2 = 0 THEN 'yes' END
           FROM generate_series(1, 9) AS n""",
        """SELECT a.id, b.id AS other, r.g
           FROM a CROSS JOIN b
           LEFT JOIN (SELECT c.j, coalesce(d.h, 0) AS h, coalesce(d.g, 'none') AS g
                      FROM c LEFT JOIN d ON c.h = d.j AND c.v + 1 <= d.n WHERE d.c = 'yes') AS q ON b.j <> q.h
           LEFT JOIN (SELECT e.j, coalesce(d.h, 0) AS h, coalesce(d.g, 'none') AS g
                      FROM b AS e LEFT JOIN d ON e.j = d.j AND e.h = d.h) AS r ON q.g = r.g AND q.j = r.j
           WHERE a.h = b.j AND (r.h <> b.j OR r.j <> 2)""",
        "UPDATE c SET v = v + 1; UPDATE a SET h = (h + 1) % 4 WHERE id < 4; DELETE FROM d WHERE j = 1 AND h = 1",
        "DELETE FROM c WHERE j = 1; INSERT INTO d VALUES (2, 1, 'g1', 9, 'yes'); UPDATE b SET h = 1 WHERE id = 4",
    )
