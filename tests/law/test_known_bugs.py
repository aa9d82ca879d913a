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


# -- outer joins -----------------------------------------------------------------------------

OUTER = "SELECT c.id, o.id AS its, c.region, o.amount FROM customers AS c {} JOIN orders AS o ON o.customer = c.id"
outer = pytest.mark.parametrize("kind", ["LEFT", "RIGHT", "FULL"])


@outer
def test_both_sides_of_an_outer_join_go_and_leave_no_padded_phantom(lawful: Lawful, kind: str) -> None:
    lawful(
        SHOP,
        OUTER.format(kind),
        "DELETE FROM orders WHERE customer = 3; DELETE FROM customers WHERE id = 3",
        "DELETE FROM customers WHERE id = 4; INSERT INTO customers VALUES (3, 'back', 1)",
        "INSERT INTO customers VALUES (4, 'back', 1); DELETE FROM orders WHERE customer = 4",
    )


@outer
def test_a_padded_row_goes_when_a_partner_comes_and_comes_back_when_the_last_one_goes(
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


@pytest.mark.parametrize("measure", ["min(s.weight)", "max(s.weight)", "count(s.id)", "sum(o.amount)"])
def test_extremes_over_two_chained_left_joins_enter_a_group_that_is_there(lawful: Lawful, measure: str) -> None:
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


# -- subqueries ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["", " WHERE o.status IS DISTINCT FROM c.region"], ids=["alone", "tied"])
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


@pytest.mark.parametrize("operator", ["UNION", "INTERSECT", "EXCEPT"])
def test_rows_of_a_set_operation_are_counted_on_both_sides(lawful: Lawful, operator: str) -> None:
    lawful(
        SHOP,
        f"""SELECT customer, status FROM orders
            {operator} SELECT id, CASE WHEN id % 2 = 0 THEN 'paid' END FROM customers""",
        "DELETE FROM orders WHERE id IN (1, 10, 3, 12)",
        "UPDATE orders SET status = NULL WHERE id % 3 = 0",
        "DELETE FROM customers WHERE id < 5; UPDATE orders SET customer = NULL WHERE customer = 6",
        "DELETE FROM orders WHERE status = 'paid'; INSERT INTO customers VALUES (2, 'x', 1)",
    )


def test_aggregates_of_aggregates_through_views_lose_no_delete(law: Law, lawful: Lawful) -> None:
    """#331: in a chain of views a row's id was made of its content, and two that were equal went together."""
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


# -- windows and first rows ------------------------------------------------------------------


def test_a_row_leaves_one_partition_and_enters_another(lawful: Lawful) -> None:
    lawful(
        SHOP,
        """SELECT id, customer, rank() OVER (PARTITION BY customer ORDER BY amount, id) AS place,
               sum(amount) OVER (PARTITION BY status) AS total FROM orders""",
        "UPDATE orders SET customer = 1 WHERE id IN (2, 11)",
        "UPDATE orders SET status = NULL, amount = 0 WHERE id % 4 = 0",
        "DELETE FROM orders WHERE customer = 1",
    )


def test_the_row_behind_the_last_takes_the_place_of_one_that_goes(lawful: Lawful) -> None:
    lawful(
        SHOP,
        "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 5",
        "DELETE FROM orders WHERE id = 38",
        "UPDATE orders SET amount = 1000 WHERE id = 1",
        "UPDATE orders SET amount = 0 WHERE amount > 40",
        "DELETE FROM orders WHERE id > 3",
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
