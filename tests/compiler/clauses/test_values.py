"""VALUES."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.compiler.clauses.values import values_as_selects, values_table
from millstream.errors import Unsupported
from millstream.testing.planning_server import pg_type

TYPES = (pg_type("int4"), pg_type("text"))


def values(text: str) -> exp.Values:
    node = parsed(f"SELECT * FROM ({text}) AS v").find(exp.Values)
    assert node is not None
    return node


def test_constant_rows_are_a_table_with_the_servers_types() -> None:
    table = values_table(values("VALUES (1, 'a'), (2, 'b')"), lambda _: TYPES)
    assert [(column.name, column.type) for column in table.columns] == [
        ("column1", TYPES[0]),
        ("column2", TYPES[1]),
    ]
    assert not table.single
    assert values_table(values("VALUES (1, 'a')"), lambda _: TYPES).single


@pytest.mark.parametrize("text", ["VALUES (t.a, 'a')", "VALUES ((SELECT 1), 'a')"])
def test_columns_and_subqueries_are_refused(text: str) -> None:
    with pytest.raises(Unsupported, match="VALUES with a column or a subquery"):
        values_table(values(text), lambda _: TYPES)


def test_rows_become_selects_of_a_union_all() -> None:
    union = values_as_selects(values("VALUES (1, t.a), (2, t.b)"))
    assert isinstance(union, exp.Union)
    assert not union.args["distinct"]
    assert [select.expressions[1].alias for select in union.find_all(exp.Select)] == [
        "column2",
        "column2",
    ]
