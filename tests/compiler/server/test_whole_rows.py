"""Whole rows of tables become columns that a derived table shows."""

from __future__ import annotations

import pytest

from millstream.compiler.server import queries
from millstream.compiler.server.plan_query import plan_query
from millstream.compiler.server.whole_rows import expand_whole_rows
from millstream.errors import Unsupported
from millstream.postgres.connection import Connection


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(u.*) AS n FROM t LEFT JOIN u ON u.id = t.id",
        "SELECT t.id, u.* IS NULL AS r FROM (t LEFT JOIN u ON u.id = t.id) JOIN u AS v ON v.id = t.x",
        "SELECT t.id FROM t WHERE EXISTS (SELECT FROM u AS v (a, b, c) WHERE v.a = t.id AND v IS NOT NULL)",
        "SELECT t.id, (SELECT count(*) FROM u WHERE u.id = t.id AND t.* IS NOT NULL) AS n FROM t",
    ],
)
def test_the_row_of_a_table_is_a_column(planner: Connection, query: str) -> None:
    canonical = queries.canonical(planner, query)
    expanded = expand_whole_rows(planner, canonical)
    assert "__ms_row" in expanded.text
    assert expanded.columns == canonical.columns
    plan_query(planner, query)


def test_a_query_without_whole_rows_stays(planner: Connection) -> None:
    canonical = queries.canonical(planner, "SELECT t.*, x * 2 AS y FROM t")
    assert expand_whole_rows(planner, canonical) is canonical


def test_the_type_of_the_rows_is_a_definition_under_the_query(planner: Connection) -> None:
    """A column that is added to the table changes the rows."""
    query = "SELECT count(u.*) AS n FROM u"
    with planner.transaction(force_rollback=True):
        before = plan_query(planner, query).digests
        planner.execute("ALTER TABLE u ADD COLUMN more int")
        after = plan_query(planner, query).digests
    (row_type,) = planner.execute(
        "SELECT reltype::int8 FROM pg_class WHERE oid = 'u'::regclass"
    ).fetchall()[0]
    assert before["type", row_type] != after["type", row_type]


@pytest.mark.notimpl
@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(q.*) AS n FROM (SELECT id FROM u) AS q",
        "SELECT u.t, u AS r, count(*) AS n FROM u GROUP BY u.id",
    ],
)
def test_a_row_of_anything_else_is_refused(planner: Connection, query: str) -> None:
    with pytest.raises(Unsupported, match="whole row"):
        plan_query(planner, query)
