"""Bugs that peers really had: each is a case that must stay right here.

The lists they come from: simultaneous changes of both sides of a join, groups that empty, keys that turn into NULL and
back, sums that drift, extremes that go, rows without a key, ids that merge rows. Every test refreshes differentially
after each change, is compared with PostgreSQL in the cut, and ends with a full recomputation that corrects nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from millstream.refresh.report import RefreshReport

if TYPE_CHECKING:
    from tests.law.conftest import Law

pytestmark = pytest.mark.spark

Lawful = Callable[..., list[RefreshReport]]

SHOP = """
    CREATE TABLE customers (id int PRIMARY KEY, region text, credit int);
    CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(12,2), status text);
    CREATE INDEX ON orders (customer);
    INSERT INTO customers SELECT i, 'r' || i % 3, i FROM generate_series(1, 9) AS i;
    INSERT INTO orders SELECT i, 1 + i % 9, i * 1.10, CASE i % 3 WHEN 0 THEN 'open' ELSE 'paid' END
        FROM generate_series(1, 40) AS i;
"""
PAIRS = "SELECT o.id, c.region, o.amount FROM orders AS o JOIN customers AS c ON c.id = o.customer"
BY_REGION = """
    SELECT c.region, count(*) AS n, sum(o.amount) AS total
    FROM orders AS o JOIN customers AS c ON c.id = o.customer GROUP BY c.region
"""

both = pytest.mark.parametrize("query", [PAIRS, BY_REGION], ids=["pairs", "groups"])


# -- joins -----------------------------------------------------------------------------------


@both
def test_rows_that_come_on_both_sides_of_a_join_meet_once(lawful: Lawful, query: str) -> None:
    lawful(SHOP, query, "INSERT INTO customers VALUES (10, 'new', 1); INSERT INTO orders VALUES (100, 10, 5, 'open')")


@both
def test_rows_that_go_on_both_sides_of_a_join_leave_no_phantom(lawful: Lawful, query: str) -> None:
    lawful(SHOP, query, "DELETE FROM orders WHERE customer = 3; DELETE FROM customers WHERE id = 3")


@both
def test_both_sides_of_a_pair_change_at_once(lawful: Lawful, query: str) -> None:
    change = """
        UPDATE orders SET amount = amount + {n} WHERE customer = 2;
        UPDATE customers SET region = 'x{n}' WHERE id = 2
    """
    lawful(SHOP, query, change.format(n=1), change.format(n=2))


@both
def test_an_update_changes_join_key_and_value_at_once(lawful: Lawful, query: str) -> None:
    lawful(SHOP, query, "UPDATE orders SET customer = customer % 9 + 1, amount = -amount WHERE id <= 20")


def test_the_other_side_moves_away_while_this_one_changes(lawful: Lawful) -> None:
    lawful(
        SHOP,
        PAIRS,
        """
        UPDATE customers SET id = 20 WHERE id = 1;
        UPDATE orders SET amount = 7 WHERE customer = 1;
        UPDATE orders SET customer = 20 WHERE customer = 2
        """,
    )


def test_keys_are_swapped(lawful: Lawful) -> None:
    lawful(
        SHOP,
        PAIRS,
        """
        UPDATE customers SET id = -id WHERE id IN (1, 2);
        UPDATE customers SET id = CASE id WHEN -1 THEN 2 ELSE 1 END WHERE id < 0
        """,
    )


def test_a_key_without_a_partner_finds_one_later_and_loses_it(lawful: Lawful) -> None:
    lawful(
        SHOP,
        PAIRS,
        "INSERT INTO orders VALUES (100, 77, 1, NULL), (101, NULL, 2, NULL)",
        "INSERT INTO customers VALUES (77, 'late', NULL)",
        "DELETE FROM customers WHERE id = 77",
    )


def test_a_self_join_whose_both_sides_are_the_changed_row(lawful: Lawful) -> None:
    lawful(
        SHOP,
        """SELECT a.id, b.id AS other FROM orders AS a JOIN orders AS b
           ON a.customer = b.customer AND a.amount < b.amount""",
        "UPDATE orders SET amount = 100 - amount, customer = 1 WHERE id % 4 = 0",
        "DELETE FROM orders WHERE id % 5 = 0",
    )


def test_a_cross_join_of_two_changed_tables(lawful: Lawful) -> None:
    lawful(
        SHOP,
        "SELECT o.status, c.region FROM orders AS o CROSS JOIN customers AS c",
        "DELETE FROM orders WHERE id < 30; INSERT INTO customers VALUES (10, 'r0', 1), (11, 'r0', 2)",
    )


def test_a_chain_of_three_whose_ends_change(lawful: Lawful) -> None:
    regions = "CREATE TABLE regions (name text, tax int); INSERT INTO regions VALUES ('r0', 1), ('r1', 2), ('r1', 2)"
    lawful(
        SHOP + regions,
        """SELECT o.id, r.tax, o.amount * r.tax AS due FROM orders AS o JOIN customers AS c ON c.id = o.customer
           JOIN regions AS r ON r.name = c.region""",
        """
        UPDATE orders SET amount = amount + 1 WHERE id % 2 = 0;
        UPDATE regions SET tax = 5 WHERE name = 'r1'
        """,
        """
        DELETE FROM regions WHERE ctid = (SELECT min(ctid) FROM regions WHERE name = 'r1');
        DELETE FROM orders WHERE id = 1
        """,
        """
        INSERT INTO regions VALUES ('r2', 9);
        UPDATE customers SET region = 'r2' WHERE id < 4;
        DELETE FROM orders WHERE id > 35
        """,
    )


# -- groups ----------------------------------------------------------------------------------


@pytest.mark.parametrize("measures", ["count(*) AS n, sum(amount) AS total", "min(amount) AS x, max(status) AS y"])
def test_a_group_key_turns_into_null_and_back(lawful: Lawful, measures: str) -> None:
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
def test_an_extreme_goes_and_the_next_one_takes_its_place(lawful: Lawful, function: str, worst: int) -> None:
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


# -- bags ------------------------------------------------------------------------------------


def test_equal_rows_without_a_key_are_counted(lawful: Lawful) -> None:
    one = "DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE {})"
    lawful(
        """CREATE TABLE t (a int, b text);
           INSERT INTO t VALUES (1, 'x'), (1, 'x'), (1, 'x'), (NULL, NULL), (NULL, NULL)""",
        "SELECT a, b FROM t",
        "INSERT INTO t VALUES (1, 'x'), (1, 'x'), (1, 'x')",
        one.format("a = 1"),
        one.format("a IS NULL"),
        "UPDATE t SET a = NULL, b = NULL WHERE ctid IN (SELECT ctid FROM t WHERE a = 1 LIMIT 2)",
        "DELETE FROM t",
    )


def test_a_row_id_tells_columns_apart(lawful: Lawful) -> None:
    """('a,', 'b') from ('a', ',b'), NULL from '' and from 'NULL'."""
    lawful(
        """CREATE TABLE t (a text, b text);
           INSERT INTO t VALUES ('a', ',b'), ('a,', 'b'), ('', NULL), (NULL, ''), ('NULL', '"'), ('(', ')')""",
        "SELECT a, b FROM t",
        "DELETE FROM t WHERE a = 'a'",
        "INSERT INTO t VALUES (NULL, NULL), ('', ''), ('a', ',b')",
        "DELETE FROM t WHERE a = ''",
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, amount FROM orders",
        "SELECT status FROM orders",
        "SELECT customer, max(amount) AS most FROM orders GROUP BY customer",
    ],
)
def test_changes_that_cancel_leave_the_target_alone(law: Law, query: str) -> None:
    law.change(SHOP)
    law.create("kept", query)
    law.change(
        "UPDATE orders SET amount = amount + 1, status = status || '!'",
        "UPDATE orders SET amount = amount - 1, status = left(status, -1)",
        "INSERT INTO orders VALUES (99, 1, 1, 'x')",
        "DELETE FROM orders WHERE id = 99",
    )
    (report,) = law.refresh("kept")
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)


def test_a_row_deleted_and_inserted_again_in_one_transaction(lawful: Lawful) -> None:
    lawful(
        SHOP,
        PAIRS,
        """
        CREATE TEMPORARY TABLE was AS SELECT * FROM orders WHERE id < 9;
        DELETE FROM orders WHERE id < 9;
        INSERT INTO orders SELECT * FROM was;
        UPDATE orders SET amount = amount + 1 WHERE id = 3
        """,
    )


# -- partitions ------------------------------------------------------------------------------


def test_rows_of_two_partitions_that_stand_at_one_place_are_two_rows(lawful: Lawful) -> None:
    """The middle of a chain is found from both ends; a row is told apart by its partition and its place there."""
    lawful(
        """CREATE TABLE left_end (k int); CREATE TABLE right_end (m int, tag text);
           CREATE TABLE middle (k int, m int, part int) PARTITION BY LIST (part);
           CREATE TABLE middle_1 PARTITION OF middle FOR VALUES IN (1);
           CREATE TABLE middle_2 PARTITION OF middle FOR VALUES IN (2);
           INSERT INTO middle VALUES (1, 1, 1), (1, 1, 2), (2, 1, 1), (2, 2, 2);
           INSERT INTO left_end VALUES (1), (2); INSERT INTO right_end VALUES (1, 'a'), (2, 'b')""",
        """SELECT l.k, m.part, r.tag FROM left_end AS l JOIN middle AS m ON m.k = l.k
           JOIN right_end AS r ON r.m = m.m""",
        "INSERT INTO left_end VALUES (1); INSERT INTO right_end VALUES (1, 'c')",
        # Rows that move between partitions, and a write to a leaf.
        "UPDATE middle SET part = 3 - part WHERE k = 1; DELETE FROM right_end WHERE tag = 'a'",
        "INSERT INTO middle_2 VALUES (2, 1, 2); DELETE FROM left_end WHERE k = 1",
    )
