"""Inner joins: rows that change on both sides at once meet once, and go without a trace.

Most are bugs that other systems had, or that the law found in this one: the docstring or the key
says which.
"""

from __future__ import annotations

import pytest
from tests.law.conftest import SHOP, TWO_CHANGES, TWO_TABLES, Lawful

pytestmark = pytest.mark.spark


PAIRS = "SELECT o.id, c.region, o.amount FROM orders AS o JOIN customers AS c ON c.id = o.customer"


BY_REGION = """
    SELECT c.region, count(*) AS n, sum(o.amount) AS total
    FROM orders AS o JOIN customers AS c ON c.id = o.customer GROUP BY c.region
"""


both = pytest.mark.parametrize("query", [PAIRS, BY_REGION], ids=["pairs", "groups"])


@both
def test_rows_inserted_on_both_sides_of_a_join_join_once(lawful: Lawful, query: str) -> None:
    lawful(
        SHOP,
        query,
        "INSERT INTO customers VALUES (10, 'new', 1); INSERT INTO orders VALUES (100, 10, 5, 'open')",
    )


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
    lawful(
        SHOP,
        query,
        "UPDATE orders SET customer = customer % 9 + 1, amount = -amount WHERE id <= 20",
    )


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


JOINS = {
    "one column tied to two was looked up under one name": """
        SELECT a.id, b.id AS other FROM a JOIN b ON a.x = b.y AND a.x = b.z""",
    "constants only: there is no column to carry": """
        SELECT 1 AS one, 'x' AS letter FROM a JOIN b ON a.x = b.y""",
    "an expression failed for a row that no result has": """
        SELECT a.id, 10 / a.x AS share, CASE WHEN b.y > 0 THEN 10 / a.x END AS guarded
        FROM a JOIN b ON b.id = a.id WHERE a.x * b.z <> 0""",
    "of two joins that pad a column, the inner one spoke where the outer one had made it NULL": """
        SELECT a.id, q.id AS other FROM a
        LEFT JOIN (SELECT b.id, b.y, coalesce(c.t, 'none') AS word FROM b LEFT JOIN a AS c ON c.x = b.z AND c.id > 5)
        AS q ON q.y = a.id WHERE q.word >= 'b' OR q.word = 'none'""",
}


@pytest.mark.parametrize("bug", JOINS)
def test_joins_of_two_tables_that_were_wrong_are_right(lawful: Lawful, bug: str) -> None:
    lawful(TWO_TABLES, JOINS[bug], *TWO_CHANGES)


@pytest.mark.parametrize(
    ("condition", "change"),
    [
        ("a.big = b.small", "UPDATE a SET big = 10000000000 WHERE id = 1"),
        ("b.n = a.m", "UPDATE b SET n = 123456.789 WHERE id = 1"),
        ("b.c = a.c", "UPDATE b SET c = 'abcdef' WHERE id = 1"),
        ("b.v = a.v", "UPDATE b SET v = 'abcdef' WHERE id = 1"),
    ],
)
def test_a_key_that_does_not_fit_the_other_sides_type_is_looked_up(
    lawful: Lawful, condition: str, change: str
) -> None:
    """It was cast to that type: an error, or another key."""
    lawful(
        TWO_TABLES,
        f"SELECT a.id, b.id AS other FROM a JOIN b ON {condition}",
        change,
        """
        UPDATE a SET m = 1.25, c = 'ab', v = 'ab', big = 3 WHERE id < 3;
        UPDATE b SET n = 1.25, c = 'ab', v = 'ab', small = 3 WHERE id = 5
        """,
    )
