"""Aggregates: groups that come, go and lose their extremes, and sums that do not drift.

Most are bugs that other systems had, or that the law found in this one: the docstring or the key
says which.
"""

from __future__ import annotations

import pytest
from tests.law.conftest import SHOP, TWO_CHANGES, TWO_TABLES, Law, Lawful

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "measures", ["count(*) AS n, sum(amount) AS total", "min(amount) AS x, max(status) AS y"]
)
def test_a_group_key_becomes_null_and_back(lawful: Lawful, measures: str) -> None:
    lawful(
        SHOP,
        f"SELECT status, {measures} FROM orders GROUP BY status",
        "UPDATE orders SET status = NULL WHERE id % 4 = 0",
        "UPDATE orders SET status = coalesce(status, 'open'), amount = amount + 1",
        "UPDATE orders SET status = NULL",
    )


@pytest.mark.parametrize("measure", ["count(*)", "max(amount)", "sum(amount::float8)"])
def test_removing_the_last_row_of_a_group_removes_the_group(lawful: Lawful, measure: str) -> None:
    lawful(
        SHOP,
        f"SELECT customer, {measure} AS measure FROM orders GROUP BY customer",
        "DELETE FROM orders WHERE customer = 5",
        "INSERT INTO orders VALUES (50, 5, 1, NULL)",
        "DELETE FROM orders",
    )


def test_a_global_aggregate_keeps_its_row_when_everything_goes(lawful: Lawful) -> None:
    lawful(
        SHOP,
        """SELECT count(*) AS n, count(amount) AS told, sum(amount) AS total, min(amount) AS least, avg(amount) AS mean
           FROM orders""",
        "DELETE FROM orders",
        "INSERT INTO orders VALUES (1, 1, NULL, NULL)",
        "UPDATE orders SET amount = 3",
    )


def test_a_sum_of_no_values_is_null_and_not_zero(lawful: Lawful) -> None:
    lawful(
        SHOP,
        """SELECT customer, sum(amount) AS total, avg(amount) AS mean, count(amount) AS told
           FROM orders GROUP BY customer""",
        "UPDATE orders SET amount = NULL WHERE customer < 4",
        "UPDATE orders SET amount = 0 WHERE customer = 2",
    )


def test_a_sum_of_a_case_does_not_drift(lawful: Lawful) -> None:
    flip = "UPDATE orders SET status = CASE status WHEN 'paid' THEN 'open' ELSE 'paid' END WHERE id % {n} = 0;"
    lawful(
        SHOP,
        """SELECT c.region, sum(CASE WHEN o.status = 'paid' THEN o.amount ELSE 0 END) AS paid,
               sum(CASE WHEN o.status = 'open' AND c.credit > 4 THEN 1 ELSE 0 END) AS risky,
               sum(CASE WHEN c.credit > 4 THEN o.amount END) AS covered
           FROM orders AS o JOIN customers AS c ON c.id = o.customer GROUP BY c.region""",
        flip.format(n=2),
        flip.format(n=3) + "UPDATE customers SET credit = 9 - credit",
        flip.format(n=1),
    )


def test_float_sums_do_not_drift(lawful: Lawful) -> None:
    lawful(
        """CREATE TABLE readings (id int PRIMARY KEY, place int, value float8);
           INSERT INTO readings SELECT i, i % 3, i FROM generate_series(1, 9) AS i""",
        "SELECT place, sum(value) AS total, avg(value) AS mean FROM readings GROUP BY place",
        "INSERT INTO readings VALUES (100, 1, 1e100), (101, 2, 1e20)",
        "UPDATE readings SET value = 0.1 WHERE id < 4",
        # What is left must not remember that 1e100 was ever there.
        "DELETE FROM readings WHERE id >= 100",
    )


def test_numeric_sums_are_exact_to_the_last_digit(lawful: Lawful) -> None:
    lawful(
        """CREATE TABLE t (g int, x numeric(38,10));
           INSERT INTO t VALUES (1, 9999999999999999999999999999.0000000001), (2, 1)""",
        "SELECT g, sum(x) AS total, avg(x) AS mean, min(x) AS least FROM t GROUP BY g",
        "INSERT INTO t VALUES (1, 0.0000000009), (2, -3)",
        "DELETE FROM t WHERE x > 1000",
    )


@pytest.mark.parametrize(("function", "worst"), [("min", 999), ("max", -999)])
def test_an_extreme_goes_and_the_next_one_takes_its_place(
    lawful: Lawful, function: str, worst: int
) -> None:
    edge = f"(SELECT {function}(amount) FROM orders AS o WHERE o.customer = orders.customer)"
    reports = lawful(
        SHOP,
        f"SELECT customer, {function}(amount) AS edge FROM orders GROUP BY customer",
        f"DELETE FROM orders WHERE amount = {edge} AND customer < 3",
        f"UPDATE orders SET amount = {worst} WHERE amount = {edge}",
        f"INSERT INTO orders VALUES (70, 1, {worst}, NULL)",
    )
    # One more of the worst is no loss: nothing is read again.
    assert [one.path for one in reports[-1].inputs] == ["changes"]


def test_an_equal_extreme_that_stays_keeps_its_place(lawful: Lawful) -> None:
    lawful(
        """CREATE TABLE t (g int, x int, y text);
           INSERT INTO t VALUES (1, 5, 'a'), (1, 5, 'b'), (1, 9, 'c'), (2, NULL, 'd')""",
        "SELECT g, min(x) AS least, max(y) AS last FROM t GROUP BY g",
        "DELETE FROM t WHERE y = 'a'",
        "DELETE FROM t WHERE y IN ('b', 'd')",
    )


def test_an_extreme_that_comes_and_goes_in_one_slice_was_never_there(lawful: Lawful) -> None:
    lawful(
        SHOP,
        "SELECT customer, min(amount) AS least, max(amount) AS most FROM orders GROUP BY customer",
        """
        INSERT INTO orders VALUES (99, 1, -5, NULL), (98, 1, 5000, NULL);
        DELETE FROM orders WHERE id > 90;
        UPDATE orders SET status = 'x' WHERE id = 1;
        INSERT INTO orders VALUES (60, 2, 5, NULL)
        """,
    )


def test_groups_enter_and_leave_having(lawful: Lawful) -> None:
    lawful(
        SHOP,
        """SELECT customer, count(*) AS n, max(amount) AS most FROM orders GROUP BY customer
           HAVING count(*) > 4 OR max(amount) > 40""",
        "DELETE FROM orders WHERE id > 36",
        "INSERT INTO orders VALUES (90, 1, 41, NULL)",
        "UPDATE orders SET amount = 1",
        "UPDATE orders SET customer = 1",
    )


def test_groups_of_two_tables_lose_their_extreme(lawful: Lawful) -> None:
    lawful(
        SHOP,
        """SELECT c.region, o.status, max(o.amount) AS most, min(c.credit) AS least
           FROM orders AS o JOIN customers AS c ON c.id = o.customer GROUP BY c.region, o.status""",
        "DELETE FROM orders WHERE id > 30",
        "UPDATE customers SET credit = 100 WHERE id < 4",
        "UPDATE customers SET region = NULL WHERE id = 2; UPDATE orders SET status = NULL WHERE id % 6 = 0",
        "DELETE FROM customers WHERE region IS NULL; UPDATE orders SET amount = 0 WHERE status IS NULL",
    )


def test_aggregates_of_aggregates_through_views_lose_no_delete(law: Law, lawful: Lawful) -> None:
    """#331: in a chain of views a row's id was made of its content, and two that were equal went
    together.
    """
    lawful(
        SHOP
        + """CREATE VIEW per_customer AS SELECT customer, status, count(*) AS n, sum(amount) AS total
                 FROM orders GROUP BY customer, status;
             CREATE VIEW per_size AS SELECT n, count(*) AS times, max(total) AS most FROM per_customer GROUP BY n""",
        """SELECT s.times, count(*) AS sizes, sum(s.most) AS total, max(p.n) AS n FROM per_size AS s
           JOIN (SELECT DISTINCT n FROM per_customer) AS p USING (n) GROUP BY s.times""",
        "DELETE FROM orders WHERE id IN (1, 2, 3)",
        "UPDATE orders SET status = 'open' WHERE customer < 4",
        """INSERT INTO orders SELECT i, 1, 1, 'paid' FROM generate_series(100, 104) AS i;
           DELETE FROM orders WHERE customer = 2""",
        "DELETE FROM orders",
    )


AGGREGATES = {
    "the state of an extreme over two tables had no column to take its type from": """
        SELECT a.t, min(a.x + b.y) AS least, max(coalesce(a.t, b.t)) AS last FROM a JOIN b ON a.x = b.z GROUP BY a.t""",
}


@pytest.mark.parametrize("bug", AGGREGATES)
def test_an_aggregate_that_was_wrong_is_right(lawful: Lawful, bug: str) -> None:
    lawful(TWO_TABLES, AGGREGATES[bug], *TWO_CHANGES)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT g, min(w) AS first, max(w) AS last FROM t GROUP BY g",
        "SELECT t.g, greatest(t.w, o.w) AS later, t.w < o.w AS before FROM t JOIN t AS o ON t.g = o.g",
    ],
)
def test_texts_are_ordered_by_their_own_collation(law: Law, lawful: Lawful, query: str) -> None:
    """They were ordered by the database's."""
    if not law.conn.execute("SELECT FROM pg_collation WHERE collname = 'und-x-icu'").fetchall():
        pytest.skip("this server was built without ICU")
    lawful(
        """CREATE TABLE t (g int, w text COLLATE "und-x-icu"); INSERT INTO t VALUES (1, 'a'), (1, 'B'), (1, 'c')""",
        query,
        "INSERT INTO t VALUES (1, 'D'), (1, 'Á')",
        "DELETE FROM t WHERE w IN ('a', 'D')",
    )


@pytest.mark.parametrize("lookups", [200_000, 0])
def test_rows_of_a_group_that_are_found_twice_count_once(
    law: Law, lawful: Lawful, lookups: int
) -> None:
    """Recomputing a group starts from its rows; where completing a join led back to them, they were
    counted twice.
    """
    law.ms.app.settings = law.ms.app.settings.model_copy(update={"max_lookup_rows": lookups})
    lawful(
        """CREATE TABLE t (c int, j int, h int); CREATE TABLE u (c int, j int);
           INSERT INTO t VALUES (1, 3, 3), (1, NULL, 3); INSERT INTO u VALUES (1, 3), (1, 5)""",
        """SELECT a.c, max(y.h) AS most, count(*) AS n
           FROM t AS a JOIN u AS m ON m.c = a.c AND m.j = a.j
           JOIN (t AS x LEFT JOIN t AS y ON y.c = x.c) ON m.c = x.c AND m.c = y.c AND m.j = y.h GROUP BY a.c""",
        "DELETE FROM t WHERE j IS NULL",
        "INSERT INTO t VALUES (1, 3, 5), (1, 5, 5)",
        "DELETE FROM t WHERE h = 5",
    )


def test_the_digits_of_an_average_are_those_of_the_values_there_are(lawful: Lawful) -> None:
    """How many digits a quotient has depends on those of the sum; values that had gone still
    counted.
    """
    lawful(
        "CREATE TABLE t (g int, x numeric); INSERT INTO t VALUES (1, 1), (1, 1), (1, 2), (2, 5.5)",
        "SELECT g, avg(x) AS mean, sum(x) AS total, sum(x)::text AS shown, sum(x) / 7 AS share FROM t GROUP BY g",
        "INSERT INTO t VALUES (1, 0.123456789012345678), (2, 100000000000.25), (2, 0.0000000001)",
        "DELETE FROM t WHERE x < 1",
        "INSERT INTO t VALUES (1, 0.123456789012345678); DELETE FROM t WHERE x < 1; INSERT INTO t VALUES (2, 1.2500)",
        "DELETE FROM t WHERE x = 1.25",
        "DELETE FROM t WHERE x = 5.5",
    )


@pytest.mark.parametrize(
    "number",
    ["a.n * b.y", "a.n + b.n", "coalesce(a.n, b.m)", "CASE WHEN b.y > 1 THEN a.n ELSE b.m END"],
)
def test_the_digits_of_an_average_over_two_tables(lawful: Lawful, number: str) -> None:
    lawful(
        """CREATE TABLE a (id int PRIMARY KEY, n numeric);
           CREATE TABLE b (id int PRIMARY KEY, y int, n numeric, m numeric(9,3));
           INSERT INTO a VALUES (1, 1), (2, 1.0), (3, 2.25), (4, NULL);
           INSERT INTO b VALUES (1, 1, 0.1, 1), (2, 3, 1, 2), (3, 3, 5, NULL), (4, 1, 7, 7)""",
        f"SELECT avg({number}) AS mean, sum({number}) / 7 AS share, b.y FROM a JOIN b ON a.id = b.id GROUP BY b.y",
        "INSERT INTO a VALUES (5, 0.123456789012), (6, 0.1234567); INSERT INTO b VALUES (5, 3, 1, 1), (6, 1, 1, 1)",
        "DELETE FROM a WHERE id = 5",
        "DELETE FROM b WHERE id = 6",
    )


def test_the_digits_of_an_average_over_a_union(lawful: Lawful) -> None:
    lawful(
        """CREATE TABLE a (m numeric(9,2), n numeric, i int);
           INSERT INTO a VALUES (1, 1.5, 1), (2.25, 0.12345678901, 3)""",
        """SELECT count(*) AS n, avg(v) AS mean
           FROM (SELECT m AS v FROM a UNION ALL SELECT n FROM a UNION ALL SELECT i FROM a) AS u""",
        "INSERT INTO a VALUES (7, 7, 7)",
        "DELETE FROM a WHERE i = 3",
    )
