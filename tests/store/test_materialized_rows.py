"""Rows that are stored as they are: only what differs is written, and equal rows are counted."""

from __future__ import annotations

import pytest
from psycopg import sql
from tests.compiler.conftest import planned

from millstream.algebra.block import Block
from millstream.postgres.connection import Connection
from millstream.store.materialized_rows import change_sql, create_sql, new_sql
from millstream.store.names import BlockNames

NAMES = BlockNames(5, "public", "st", shapes=("s", "s"))
# Stored rows without their part, and the changes that were noted.
STORED = sql.SQL("SELECT c0, c1 FROM {} ORDER BY 1, 2").format(NAMES.materialized)
CHANGES = sql.SQL("SELECT __ms_action, c0, c1 FROM {} ORDER BY 1, 2, 3").format(NAMES.changes)


@pytest.fixture
def block(conn: Connection) -> Block:
    """The block of the first three rows of a table, with its tables made."""
    limited, _ = planned("SELECT t.a FROM public.t WHERE t.a > 1 ORDER BY t.b LIMIT 3", "a")
    conn.execute(
        "CREATE SCHEMA millstream_state; CREATE TABLE t (id int PRIMARY KEY, a int, b int)"
    )
    changes = "CREATE TEMPORARY TABLE {} (__ms_action text, c0 int, c1 int, __ms_row text, __ms_part uuid)"
    conn.execute(sql.SQL(changes).format(NAMES.changes))
    for statement in create_sql(limited, NAMES):
        conn.execute(statement)
    return limited


def refresh(conn: Connection, block: Block) -> list[tuple[str, int, int]]:
    """Compute the rows and store them; return the changes."""
    for statement in new_sql(block, NAMES, full=False):
        conn.execute(statement)
    conn.execute(sql.SQL("DELETE FROM {}").format(NAMES.changes))
    for statement in change_sql(block, NAMES, full=False):
        conn.execute(statement)
    conn.execute(sql.SQL("DELETE FROM {}").format(NAMES.new))
    return [(action, int(c0), int(c1)) for action, c0, c1 in conn.execute(CHANGES)]


def test_only_what_differs_is_written(conn: Connection, block: Block) -> None:
    conn.execute("INSERT INTO t VALUES (1, 5, 1), (2, 6, 2), (3, 7, 3), (4, 8, 4), (5, 0, 0)")
    assert refresh(conn, block) == [("I", 5, 1), ("I", 6, 2), ("I", 7, 3)]
    conn.execute("DELETE FROM t WHERE id = 2")
    assert refresh(conn, block) == [("D", 6, 2), ("I", 8, 4)]
    assert conn.execute(STORED).fetchall() == [(5, 1), (7, 3), (8, 4)]
    assert refresh(conn, block) == []


def test_of_equal_rows_as_many_go_as_went(conn: Connection, block: Block) -> None:
    conn.execute("INSERT INTO t VALUES (1, 5, 1), (2, 5, 1), (3, 5, 1)")
    assert refresh(conn, block) == [("I", 5, 1)] * 3
    conn.execute("DELETE FROM t WHERE id < 3")
    assert refresh(conn, block) == [("D", 5, 1)] * 2
    assert conn.execute(STORED).fetchall() == [(5, 1)]


def test_other_blocks_read_the_rows_with_a_place_that_distinguishes_equal_rows(
    conn: Connection, block: Block
) -> None:
    conn.execute("INSERT INTO t VALUES (1, 5, 1), (2, 5, 1)")
    refresh(conn, block)
    rows = conn.execute(sql.SQL("SELECT c0, __ms_row FROM {}").format(NAMES.shown)).fetchall()
    assert [c0 for c0, _ in rows] == [5, 5]
    assert len({row for _, row in rows}) == 2
