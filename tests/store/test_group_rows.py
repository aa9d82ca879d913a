"""The SQL over all rows of touched groups: which groups are asked for, and each row as often as it
stands there.
"""

from __future__ import annotations

import pytest
from psycopg import sql
from tests.compiler.conftest import planned

from millstream.algebra.block import AggregateHead, Block, GroupedBlock
from millstream.postgres.connection import Connection
from millstream.store.group_rows import group_rows_sql, holistic_sql, no_rows_sql, wanted_sql
from millstream.store.names import BlockNames

NAMES = BlockNames(5, "public", "st", shapes=("s", "s"))
ROW_NUMBER = 'row_number() OVER (PARTITION BY r."g0" ORDER BY r."g1")'


@pytest.fixture
def window() -> tuple[Block, AggregateHead]:
    """The block of a window, which needs all rows of its partitions."""
    text = "SELECT t.id, row_number() OVER (PARTITION BY t.a ORDER BY t.b) AS n FROM public.t"
    block, _ = planned(text, "id n", {ROW_NUMBER: "int8"})
    assert isinstance(block, GroupedBlock)
    return block, block.head


def test_rows_come_as_often_as_they_stand_in_the_group(
    conn: Connection, window: tuple[Block, AggregateHead]
) -> None:
    block, head = window
    create = "CREATE TEMPORARY TABLE {} (k0 text, g0 text, g1 text, g2 text, __net int8)"
    conn.execute(sql.SQL(create).format(NAMES.group_rows))
    insert = "INSERT INTO {} VALUES ('1', '1', '5', '10', 2), ('1', '1', NULL, '11', 1)"
    conn.execute(sql.SQL(insert).format(NAMES.group_rows))
    query = "SELECT g1, g2, count(*), count(DISTINCT r.id) FROM {} GROUP BY 1, 2 ORDER BY 2"
    rows = conn.execute(sql.SQL(query).format(group_rows_sql(block, head, NAMES)))
    assert rows.fetchall() == [(5, 10, 2, 1), (None, 11, 1, 1)]


def test_only_groups_that_have_rows_are_asked_for(
    conn: Connection, window: tuple[Block, AggregateHead]
) -> None:
    """A group of which the last row went has no rows to be read; one that is new has no state yet."""
    _, head = window
    conn.execute("CREATE SCHEMA millstream_state")
    conn.execute(sql.SQL("CREATE TABLE {} (id int, n0 int8)").format(NAMES.state))
    conn.execute(sql.SQL("INSERT INTO {} VALUES (1, 2), (2, 2)").format(NAMES.state))
    create = "CREATE TEMPORARY TABLE {} (id int, k0 int, n0 int8, absolute bool)"
    conn.execute(sql.SQL(create).format(NAMES.groups))
    rows = "(1, 10, -2, false), (2, 20, -1, false), (3, 30, 1, false), (4, 40, 0, true)"
    conn.execute(sql.SQL("INSERT INTO {} VALUES " + rows).format(NAMES.groups))
    wanted = conn.execute(wanted_sql(head, NAMES)).fetchall()
    assert sorted(wanted) == [(20, 1), (30, 1)]


def test_no_rows_have_the_columns_that_rows_have(window: tuple[Block, AggregateHead]) -> None:
    _, head = window
    nothing = no_rows_sql(head)
    assert nothing.column_names == ["k0", "g0", "g1", "g2", "__net"]
    assert nothing.num_rows == 0


def test_without_holistic_aggregates_nothing_is_asked() -> None:
    [block] = planned("SELECT t.a, count(*) AS n FROM public.t GROUP BY t.a", "a n")
    assert isinstance(block, GroupedBlock)
    assert holistic_sql(block, block.head, NAMES) is None
