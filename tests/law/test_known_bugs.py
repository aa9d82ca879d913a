"""Bugs that peers really had, and bugs of our own that the law found: each is a case that must stay right.

The first part follows the lists in which the peers' bugs are kept: simultaneous changes of both sides of a join, groups
that empty, keys that turn into NULL and back, sums that drift. Every test refreshes differentially after each change,
compares with PostgreSQL in the cut, and ends with a full recomputation that finds nothing to correct.
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
INSERT INTO orders SELECT i, 1 + i % 9, i * 1.10, CASE i % 3 WHEN 0 THEN 'open' ELSE 'paid' END FROM generate_series(1, 40) AS i
"""
BY_REGION = """
SELECT c.region, count(*) AS n, sum(o.amount) AS total FROM orders AS o JOIN customers AS c ON c.id = o.customer GROUP BY c.region
"""
PAIRS = "SELECT o.id, c.region, o.amount FROM orders AS o JOIN customers AS c ON c.id = o.customer"


# -- joins -----------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [BY_REGION, PAIRS])
def test_rows_that_come_on_both_sides_of_a_join_meet_once(lawful: Lawful, query: str) -> None:
    lawful(SHOP, query, "INSERT INTO customers VALUES (10, 'new', 1);\nINSERT INTO orders VALUES (100, 10, 5, 'open')")


@pytest.mark.parametrize("query", [BY_REGION, PAIRS])
def test_rows_that_go_on_both_sides_of_a_join_leave_no_phantom(lawful: Lawful, query: str) -> None:
    lawful(SHOP, query, "DELETE FROM orders WHERE customer = 3;\nDELETE FROM customers WHERE id = 3")


@pytest.mark.parametrize("query", [BY_REGION, PAIRS])
def test_both_sides_of_a_pair_change_at_once(lawful: Lawful, query: str) -> None:
    change = (
        "UPDATE orders SET amount = amount + {n} WHERE customer = 2;\nUPDATE customers SET region = 'x{n}' WHERE id = 2"
    )
    lawful(SHOP, query, change.format(n=1), change.format(n=2))


@pytest.mark.parametrize("query", [BY_REGION, PAIRS])
def test_an_update_changes_join_key_and_value_at_once(lawful: Lawful, query: str) -> None:
    lawful(SHOP, query, "UPDATE orders SET customer = customer % 9 + 1, amount = -amount WHERE id <= 20")


def test_the_other_side_moves_away_while_this_one_changes(lawful: Lawful) -> None:
    change = """
        UPDATE customers SET id = 20 WHERE id = 1;
        UPDATE orders SET amount = 7 WHERE customer = 1;
        UPDATE orders SET customer = 20 WHERE customer = 2"""
    lawful(SHOP, PAIRS, change.replace(";\n        ", ";\n").strip())


def test_keys_are_swapped(lawful: Lawful) -> None:
    change = """UPDATE customers SET id = -id WHERE id IN (1, 2);
UPDATE customers SET id = CASE id WHEN -1 THEN 2 ELSE 1 END WHERE id < 0"""
    lawful(SHOP, PAIRS, change)


def test_a_key_without_a_partner_finds_one_later_and_loses_it(lawful: Lawful) -> None:
    lawful(
        SHOP, PAIRS,
        "INSERT INTO orders VALUES (100, 77, 1, NULL), (101, NULL, 2, NULL)",
        "INSERT INTO customers VALUES (77, 'late', NULL)",
        "DELETE FROM customers WHERE id = 77",
    )  # fmt: skip


def test_a_self_join_whose_both_sides_are_the_changed_row(lawful: Lawful) -> None:
    query = "SELECT a.id, b.id AS other FROM orders AS a JOIN orders AS b ON a.customer = b.customer AND a.amount < b.amount"
    lawful(
        SHOP,
        query,
        "UPDATE orders SET amount = 100 - amount, customer = 1 WHERE id % 4 = 0",
        "DELETE FROM orders WHERE id % 5 = 0",
    )


def test_a_cross_join_of_two_changed_tables(lawful: Lawful) -> None:
    query = "SELECT o.status, c.region FROM orders AS o CROSS JOIN customers AS c"
    lawful(SHOP, query, "DELETE FROM orders WHERE id < 30;\nINSERT INTO customers VALUES (10, 'r0', 1), (11, 'r0', 2)")


def test_a_chain_of_three_whose_ends_change(lawful: Lawful) -> None:
    setup = (
        SHOP
        + ";\nCREATE TABLE regions (name text, tax int);\nINSERT INTO regions VALUES ('r0', 1), ('r1', 2), ('r1', 2)"
    )
    query = """SELECT o.id, r.tax, o.amount * r.tax AS due FROM orders AS o JOIN customers AS c ON c.id = o.customer
        JOIN regions AS r ON r.name = c.region"""
    lawful(
        setup, query,
        "UPDATE orders SET amount = amount + 1 WHERE id % 2 = 0;\nUPDATE regions SET tax = 5 WHERE name = 'r1'",
        "DELETE FROM regions WHERE ctid = (SELECT min(ctid) FROM regions WHERE name = 'r1');\nDELETE FROM orders WHERE id = 1",
        "INSERT INTO regions VALUES ('r2', 9);\nUPDATE customers SET region = 'r2' WHERE id < 4;\nDELETE FROM orders WHERE id > 35",
    )  # fmt: skip


# -- groups ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "measures", ["count(*) AS n, sum(amount) AS total", "min(amount) AS least, max(status) AS last"]
)
def test_a_group_key_turns_into_null_and_back(lawful: Lawful, measures: str) -> None:
    query = f"SELECT status, {measures} FROM orders GROUP BY status"
    lawful(
        SHOP, query,
        "UPDATE orders SET status = NULL WHERE id % 4 = 0",
        "UPDATE orders SET status = coalesce(status, 'open'), amount = amount + 1",
        "UPDATE orders SET status = NULL",
    )  # fmt: skip


@pytest.mark.parametrize("measures", ["count(*) AS n", "max(amount) AS most", "sum(amount::float8) AS total"])
def test_removing_the_last_row_of_a_group_removes_the_group(lawful: Lawful, measures: str) -> None:
    query = f"SELECT customer, {measures} FROM orders GROUP BY customer"
    lawful(
        SHOP,
        query,
        "DELETE FROM orders WHERE customer = 5",
        "INSERT INTO orders VALUES (50, 5, 1, NULL)",
        "DELETE FROM orders",
    )


def test_a_global_aggregate_keeps_its_row_when_everything_goes(lawful: Lawful) -> None:
    query = "SELECT count(*) AS n, count(amount) AS told, sum(amount) AS total, min(amount) AS least, avg(amount) AS mean FROM orders"
    lawful(
        SHOP,
        query,
        "DELETE FROM orders",
        "INSERT INTO orders VALUES (1, 1, NULL, NULL)",
        "UPDATE orders SET amount = 3",
    )


def test_a_sum_of_no_values_is_null_and_not_zero(lawful: Lawful) -> None:
    query = "SELECT customer, sum(amount) AS total, avg(amount) AS mean, count(amount) AS told FROM orders GROUP BY customer"
    lawful(
        SHOP,
        query,
        "UPDATE orders SET amount = NULL WHERE customer < 4",
        "UPDATE orders SET amount = 0 WHERE customer = 2",
    )


def test_a_sum_of_a_case_does_not_drift(lawful: Lawful) -> None:
    query = """SELECT c.region, sum(CASE WHEN o.status = 'paid' THEN o.amount ELSE 0 END) AS paid,
        sum(CASE WHEN o.status = 'open' AND c.credit > 4 THEN 1 ELSE 0 END) AS risky,
        sum(CASE WHEN c.credit > 4 THEN o.amount END) AS covered
        FROM orders AS o JOIN customers AS c ON c.id = o.customer GROUP BY c.region"""
    flip = "UPDATE orders SET status = CASE status WHEN 'paid' THEN 'open' ELSE 'paid' END WHERE id % {n} = 0"
    lawful(
        SHOP,
        query,
        flip.format(n=2),
        flip.format(n=3) + ";\nUPDATE customers SET credit = 9 - credit",
        flip.format(n=1),
    )


def test_float_sums_do_not_drift(lawful: Lawful) -> None:
    setup = "CREATE TABLE readings (id int PRIMARY KEY, place int, value float8);\nINSERT INTO readings SELECT i, i % 3, i FROM generate_series(1, 9) AS i"
    query = "SELECT place, sum(value) AS total, avg(value) AS mean FROM readings GROUP BY place"
    lawful(
        setup, query,
        "INSERT INTO readings VALUES (100, 1, 1e300), (101, 2, 1e20)",
        "UPDATE readings SET value = 0.1 WHERE id < 4",
        # What is left must not remember that 1e300 was ever there.
        "DELETE FROM readings WHERE id >= 100",
    )  # fmt: skip


def test_numeric_sums_are_exact_to_the_last_digit(lawful: Lawful) -> None:
    setup = "CREATE TABLE t (g int, x numeric(38,10));\nINSERT INTO t VALUES (1, 9999999999999999999999999999.0000000001), (2, 1)"
    query = "SELECT g, sum(x) AS total, avg(x) AS mean, min(x) AS least FROM t GROUP BY g"
    lawful(setup, query, "INSERT INTO t VALUES (1, 0.0000000009), (2, -3)", "DELETE FROM t WHERE x > 1000")


@pytest.mark.parametrize(("function", "worst"), [("min", "999"), ("max", "-999")])
def test_the_extreme_of_a_group_goes_and_the_next_one_takes_its_place(
    lawful: Lawful, function: str, worst: str
) -> None:
    query = f"SELECT customer, {function}(amount) AS edge FROM orders GROUP BY customer"
    edge = f"(SELECT {function}(amount) FROM orders AS o WHERE o.customer = orders.customer)"
    reports = lawful(
        SHOP, query,
        f"DELETE FROM orders WHERE amount = {edge} AND customer < 3",
        f"UPDATE orders SET amount = {worst} WHERE amount = {edge}",
        f"INSERT INTO orders VALUES (70, 1, {worst}, NULL)",
    )  # fmt: skip
    # One more of the worst is no loss: nothing is read again.
    assert [one.path for one in reports[-1].inputs] == ["changes"]


def test_an_equal_extreme_that_stays_keeps_its_place(lawful: Lawful) -> None:
    setup = "CREATE TABLE t (g int, x int, y text);\nINSERT INTO t VALUES (1, 5, 'a'), (1, 5, 'b'), (1, 9, 'c'), (2, NULL, 'd')"
    lawful(
        setup,
        "SELECT g, min(x) AS least, max(y) AS last FROM t GROUP BY g",
        "DELETE FROM t WHERE y = 'a'",
        "DELETE FROM t WHERE y IN ('b', 'd')",
    )


def test_an_extreme_that_comes_and_goes_in_one_slice_was_never_there(lawful: Lawful) -> None:
    query = "SELECT customer, min(amount) AS least, max(amount) AS most FROM orders GROUP BY customer"
    lawful(
        SHOP,
        query,
        "INSERT INTO orders VALUES (99, 1, -5, NULL), (98, 1, 5000, NULL);\nDELETE FROM orders WHERE id > 90;\nUPDATE orders SET status = 'x' WHERE id = 1;\nINSERT INTO orders VALUES (60, 2, 5, NULL)",
    )


def test_groups_enter_and_leave_having(lawful: Lawful) -> None:
    query = "SELECT customer, count(*) AS n, max(amount) AS most FROM orders GROUP BY customer HAVING count(*) > 4 OR max(amount) > 40"
    lawful(
        SHOP,
        query,
        "DELETE FROM orders WHERE id > 36",
        "INSERT INTO orders VALUES (90, 1, 41, NULL)",
        "UPDATE orders SET amount = 1",
        "UPDATE orders SET customer = 1",
    )


def test_groups_of_two_tables_lose_their_extreme(lawful: Lawful) -> None:
    query = """SELECT c.region, o.status, max(o.amount) AS most, min(c.credit) AS least
        FROM orders AS o JOIN customers AS c ON c.id = o.customer GROUP BY c.region, o.status"""
    lawful(
        SHOP, query,
        "DELETE FROM orders WHERE id > 30", "UPDATE customers SET credit = 100 WHERE id < 4",
        "UPDATE customers SET region = NULL WHERE id = 2;\nUPDATE orders SET status = NULL WHERE id % 6 = 0",
        "DELETE FROM customers WHERE region IS NULL;\nUPDATE orders SET amount = 0 WHERE status IS NULL",
    )  # fmt: skip


# -- bags ------------------------------------------------------------------------------------


def test_equal_rows_without_a_key_are_counted(lawful: Lawful) -> None:
    setup = (
        "CREATE TABLE t (a int, b text);\nINSERT INTO t VALUES (1, 'x'), (1, 'x'), (1, 'x'), (NULL, NULL), (NULL, NULL)"
    )
    one = "DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE {})"
    lawful(
        setup, "SELECT a, b FROM t",
        "INSERT INTO t VALUES (1, 'x'), (1, 'x'), (1, 'x')", one.format("a = 1"), one.format("a IS NULL"),
        "UPDATE t SET a = NULL, b = NULL WHERE ctid IN (SELECT ctid FROM t WHERE a = 1 LIMIT 2)", "DELETE FROM t",
    )  # fmt: skip


def test_columns_are_told_apart_in_a_row_id(lawful: Lawful) -> None:
    """A row's id must tell ('a,', 'b') from ('a', ',b'), NULL from '' and from 'NULL'."""
    setup = "CREATE TABLE t (a text, b text);\nINSERT INTO t VALUES ('a', ',b'), ('a,', 'b'), ('', NULL), (NULL, ''), ('NULL', '\"'), ('(', ')')"
    lawful(
        setup,
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
    law.change(*SHOP.split(";\n"))
    law.create("kept", query)
    law.change(
        "UPDATE orders SET amount = amount + 1, status = status || '!'", "UPDATE orders SET amount = amount - 1, status = left(status, -1)",
        "INSERT INTO orders VALUES (99, 1, 1, 'x')", "DELETE FROM orders WHERE id = 99",
    )  # fmt: skip
    (report,) = law.refresh("kept")
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)


def test_a_row_deleted_and_inserted_again_in_one_transaction(lawful: Lawful) -> None:
    again = "CREATE TEMPORARY TABLE was AS SELECT * FROM orders WHERE id < 9;\nDELETE FROM orders WHERE id < 9;\nINSERT INTO orders SELECT * FROM was"
    lawful(SHOP, PAIRS, again + ";\nUPDATE orders SET amount = amount + 1 WHERE id = 3")


# -- found here ------------------------------------------------------------------------------

AB = """
CREATE TABLE a (id int PRIMARY KEY, x int, big bigint, t text, v varchar(3), c char(3), m numeric(5,2), ok boolean);
CREATE TABLE b (id int PRIMARY KEY, y int, z int, small smallint, t text, v varchar(6), c char(6), n numeric(12,6), ok boolean);
INSERT INTO a SELECT i, i % 4, i, 'a' || i % 3, left('abc', i % 4), left('abc', i % 4), i * 1.25, i % 3 = 0 FROM generate_series(1, 9) AS i;
INSERT INTO b SELECT i, i % 5, i % 2, i, 'b' || i % 3, left('abcdef', i % 6), left('abcdef', i % 6), i * 0.625, nullif(i % 3, 1) = 0
    FROM generate_series(1, 9) AS i
"""
TOUCH_ALL = "UPDATE a SET x = nullif(x + 1, 3), ok = NOT ok;\nUPDATE b SET y = nullif(y + 1, 2), z = y, t = NULL WHERE id % 2 = 0;\nDELETE FROM a WHERE id = 4;\nDELETE FROM b WHERE id = 4"


@pytest.mark.parametrize(
    "query",
    [
        # A CASE over two tables was never taken apart: planning recursed without end.
        "SELECT a.id, b.id AS other, CASE WHEN a.x > b.y THEN a.t WHEN b.ok THEN 'yes' ELSE b.t END AS pick FROM a JOIN b ON a.x = b.z",
        "SELECT a.x, sum(CASE WHEN a.x > b.y THEN a.x ELSE b.y END) AS s FROM a JOIN b ON a.id = b.id GROUP BY a.x",
        "SELECT a.x, CASE a.x WHEN b.y THEN 'same' ELSE b.t END AS word FROM a JOIN b ON a.id = b.id",
        "SELECT a.t, count(*) FILTER (WHERE a.ok AND b.ok) AS n, count(a.x) FILTER (WHERE a.x > b.y) AS c FROM a JOIN b ON a.x = b.z GROUP BY a.t",
        # IS NOT NULL over two tables was computed as IS NULL.
        "SELECT a.t, count(CASE WHEN b.ok THEN a.x END) AS n FROM a JOIN b ON a.id = b.id GROUP BY a.t",
        "SELECT a.id, b.id AS other FROM a JOIN b ON (a.x > b.y) IS NOT NULL AND a.id = b.id",
        # IS TRUE over two tables was written as a comparison with a column.
        "SELECT a.id, b.id AS other FROM a JOIN b ON (a.x > b.y) IS TRUE",
        "SELECT a.id, b.id AS other FROM a JOIN b ON (a.x > b.y) IS NOT TRUE AND a.id = b.id",
        "SELECT a.id, b.id AS other FROM a JOIN b ON b.ok = (a.x > b.y)",
        # The state of an extreme over two tables had no type.
        "SELECT a.t, min(a.x + b.y) AS least, max(coalesce(a.t, b.t)) AS last FROM a JOIN b ON a.x = b.z GROUP BY a.t",
        # One column tied to two.
        "SELECT a.id, b.id AS other FROM a JOIN b ON a.x = b.y AND a.x = b.z",
        # The parts of a COALESCE differ in length and digits: the first one's type cut the second one's value.
        "SELECT coalesce(nullif(a.v, 'ab'), b.v) AS word, count(*) AS n FROM a JOIN b ON a.id = b.id GROUP BY coalesce(nullif(a.v, 'ab'), b.v)",
        "SELECT coalesce(nullif(a.m, 2.5), b.n) AS number, count(*) AS n FROM a JOIN b ON a.id = b.id GROUP BY coalesce(nullif(a.m, 2.5), b.n)",
        # AND over an OR from a subquery lost its parentheses.
        "SELECT q.id FROM (SELECT id, (x = 1 OR t = 'a1') AS wanted, ok FROM a) AS q WHERE q.wanted AND q.ok",
        "SELECT q.id, q.p AND b.ok AS both FROM (SELECT id, (x = 1 OR ok) AS p FROM a) AS q JOIN b ON b.id = q.id",
        # A cast of a UNION ALL to the type it has already was refused across tables.
        "SELECT coalesce(a.t, b.t) AS t FROM a JOIN b ON a.id = b.id UNION ALL SELECT t FROM a",
        # Constants only: there is no column to carry.
        "SELECT 1 AS one, 'x' AS letter FROM a JOIN b ON a.x = b.y",
        # The server's words must stay as they are: these were refused.
        "SELECT id, substr(t, 1, 1) AS first, mod(x, 3) AS m, \"left\"(t, 1) AS l, x ^ 2 AS square FROM a WHERE t !~ 'z' AND ok IS NOT TRUE",
    ],
)  # fmt: skip
def test_expressions_over_two_tables(lawful: Lawful, query: str) -> None:
    lawful(
        AB, query, TOUCH_ALL, "INSERT INTO a (id, x) VALUES (20, 1), (21, NULL);\nUPDATE b SET ok = NOT ok, t = 'new'"
    )


@pytest.mark.parametrize(
    ("query", "change"),
    [
        ("SELECT a.id, b.id AS other FROM a JOIN b ON a.big = b.small", "UPDATE a SET big = 10000000000 WHERE id = 1"),
        ("SELECT a.id, b.id AS other FROM a JOIN b ON b.n = a.m", "UPDATE b SET n = 123456.789 WHERE id = 1"),
        ("SELECT a.id, b.id AS other FROM a JOIN b ON b.c = a.c", "UPDATE b SET c = 'abcdef' WHERE id = 1"),
        ("SELECT a.id, b.id AS other FROM a JOIN b ON b.v = a.v", "UPDATE b SET v = 'abcdef' WHERE id = 1"),
    ],
)  # fmt: skip
def test_a_key_that_does_not_fit_the_other_sides_type_is_looked_up_all_the_same(
    lawful: Lawful, query: str, change: str
) -> None:
    lawful(
        AB,
        query,
        change,
        "UPDATE a SET m = 1.25, c = 'ab', v = 'ab' WHERE id < 3;\nUPDATE b SET n = 1.25, c = 'ab', v = 'ab' WHERE id = 5",
    )


def test_the_last_of_a_text_is_the_last_by_its_own_collation(lawful: Lawful) -> None:
    setup = "CREATE TABLE t (g int, w text COLLATE \"und-x-icu\");\nINSERT INTO t VALUES (1, 'a'), (1, 'B'), (1, 'c')"
    lawful(
        setup,
        "SELECT g, min(w) AS first, max(w) AS last FROM t GROUP BY g",
        "INSERT INTO t VALUES (1, 'D'), (1, 'Á')",
        "DELETE FROM t WHERE w IN ('a', 'D')",
    )


def test_the_digits_of_an_average_are_those_of_the_values_there_are(lawful: Lawful) -> None:
    setup = "CREATE TABLE t (g int, x numeric);\nINSERT INTO t VALUES (1, 1), (1, 1), (1, 2), (2, 5.5)"
    lawful(
        setup, "SELECT g, avg(x) AS mean, sum(x) AS total FROM t GROUP BY g",
        "INSERT INTO t VALUES (1, 0.123456789012345678), (2, 100000000000.25), (2, 0.0000000001)",
        "DELETE FROM t WHERE x < 1", "INSERT INTO t VALUES (1, 0.123456789012345678);\nDELETE FROM t WHERE x < 1",
    )  # fmt: skip
