"""Rows that are equal, or that only an id tells apart."""

from __future__ import annotations

import pytest
from tests.law.conftest import SHOP, Law, Lawful

pytestmark = pytest.mark.spark


PAIRS = "SELECT o.id, c.region, o.amount FROM orders AS o JOIN customers AS c ON c.id = o.customer"


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


def test_a_row_id_distinguishes_columns(lawful: Lawful) -> None:
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


def test_rows_of_two_partitions_that_stand_at_one_place_are_two_rows(lawful: Lawful) -> None:
    """The middle of a chain is found from both ends; a row is told apart by its partition and its
    place there.
    """
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
