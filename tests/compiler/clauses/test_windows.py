"""Window calls become Window nodes."""

from __future__ import annotations

from itertools import count

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan, Window
from millstream.compiler.clauses.windows import build_windows, inline_named_windows
from millstream.errors import Unsupported
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


def test_a_named_window_is_written_out_and_one_that_extends_it_refused() -> None:
    select = parsed("SELECT sum(x) OVER w FROM t WINDOW w AS (PARTITION BY y)")
    assert isinstance(select, exp.Select)
    call = next(inline_named_windows(select).expressions[0].find_all(exp.Window))
    assert [key.sql() for key in call.args["partition_by"]] == ["y"]
    extended = parsed("SELECT sum(x) OVER (w ORDER BY z) FROM t WINDOW w AS (PARTITION BY y)")
    assert isinstance(extended, exp.Select)
    with pytest.raises(Unsupported, match="extends a named one"):
        inline_named_windows(extended)
