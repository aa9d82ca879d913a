"""Parts of a SELECT's syntax tree."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.algebra.expr import Expr
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.decorrelate.syntax import (
    and_operands,
    is_bare_select,
    partition_windows,
    select_expressions,
    unnest_join,
)

AGGREGATES = Aggregates(lambda: frozenset[str]())


def select(text: str) -> exp.Select:
    node = parsed(text)
    assert isinstance(node, exp.Select)
    return node


def test_the_select_list_has_no_output_names() -> None:
    items = select_expressions(select("SELECT a.x AS y, a.z FROM a"))
    assert [item.sql() for item in items] == ["a.x", "a.z"]


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("SELECT a.x + 1 AS y", True),
        ("SELECT a.x FROM a", False),
        ("SELECT a.x WHERE a.x > 0", False),
        ("SELECT count(*)", False),
        ("SELECT row_number() OVER ()", False),
    ],
)
def test_a_bare_select_has_only_a_select_list(text: str, bare: bool) -> None:
    assert is_bare_select(select(text), AGGREGATES) is bare


def test_the_operands_of_and_are_found_at_any_depth() -> None:
    assert [node.sql() for node in and_operands(Expr("(a AND b) AND (c OR d)").node)] == [
        "a",
        "b",
        "c OR d",
    ]


def test_a_parenthesized_join_is_a_list_of_joins() -> None:
    join = select("SELECT 1 FROM x, ((a JOIN b ON a.i = b.i) LEFT JOIN c ON true)").args["joins"][0]
    joins = unnest_join(join.this)
    assert [(inner.this.alias_or_name, inner.side) for inner in joins] == [
        ("a", ""),
        ("b", ""),
        ("c", "LEFT"),
    ]


def test_keys_are_added_to_each_partition() -> None:
    windows = partition_windows(
        Expr.parse("sum(x) OVER (PARTITION BY y) + rank() OVER (ORDER BY z)"), [Expr("k")]
    )
    assert [
        [key.sql() for key in call.args["partition_by"]]
        for call in windows.tree.find_all(exp.Window)
    ] == [
        ["y", "k"],
        ["k"],
    ]
