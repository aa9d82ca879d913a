"""Window calls become Window nodes."""

from __future__ import annotations

from itertools import count

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan, Window
from millstream.compiler.clauses.windows import build_windows, inline_named_windows
from millstream.testing.planning_server import table

T = Scan(table("t", "a int4, b int4, c int4"), "t")
NUMBERS = count()


def fresh(wanted: str) -> str:
    return f"{wanted}{next(NUMBERS)}"


def test_calls_of_one_partition_share_a_node_and_others_are_stacked() -> None:
    calls = [
        'sum("t"."b") OVER (PARTITION BY "t"."a")',
        'count(*) OVER (PARTITION BY "t"."a")',
        "row_number() OVER ()",
    ]
    relation, exprs = build_windows(T, [Expr.parse(call) for call in calls], fresh)
    windows = [node for node in relation.walk() if isinstance(node, Window)]
    assert [len(window.calls) for window in windows] == [1, 2]
    assert all(expr.refs <= set(relation.columns) for expr in exprs)


def test_only_columns_that_are_used_are_stored() -> None:
    relation, _ = build_windows(T, [Expr.parse('rank() OVER (ORDER BY "t"."b")')], fresh)
    assert isinstance(relation, Window)
    assert len(relation.input.columns) == 1


def test_expressions_without_window_calls_stay() -> None:
    assert build_windows(T, [Expr.ref("t", "a")], fresh) == (T, [Expr.ref("t", "a")])


@pytest.mark.parametrize(
    ("over", "windows", "whole"),
    [
        ("w", "w AS (PARTITION BY y)", "(PARTITION BY y)"),
        ("(w ORDER BY z)", "w AS (PARTITION BY y)", "(PARTITION BY y ORDER BY z)"),
        ("v", "w AS (PARTITION BY y), v AS (w ORDER BY z)", "(PARTITION BY y ORDER BY z)"),
        (
            "(v ROWS 1 PRECEDING)",
            "w AS (PARTITION BY y), v AS (w ORDER BY z)",
            "(PARTITION BY y ORDER BY z ROWS 1 PRECEDING)",
        ),
        ("w", "w AS (ORDER BY z ROWS 1 PRECEDING)", "(ORDER BY z ROWS 1 PRECEDING)"),
    ],
)
def test_a_named_window_and_one_that_extends_it_are_written_out(
    over: str, windows: str, whole: str
) -> None:
    """The window that another named one extends was lost."""
    select = parsed(f"SELECT sum(x) OVER {over} FROM t WINDOW {windows}")
    assert isinstance(select, exp.Select)
    assert printed(inline_named_windows(select).expressions[0]) == f"SUM(x) OVER {whole}"
