"""Set-returning functions of a select list move to FROM."""

from __future__ import annotations

from itertools import count

import pytest

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Expand, Scan
from millstream.compiler.clauses.select_functions import SetReturningCalls
from millstream.errors import Unsupported
from millstream.testing.planning_server import table

T = Scan(table("t", "a int4, b int4"), "t")
NAMES = {"generate_series": False, "json_each": True}


def expanded(*expressions: str) -> tuple[object, list[Expr]]:
    numbers = count()
    calls = SetReturningCalls(lambda: NAMES, lambda wanted: f"{wanted}{next(numbers)}")
    return calls.expand(T, [Expr.parse(text) for text in expressions])


def test_expressions_without_such_calls_stay() -> None:
    assert expanded('"t"."a" + 1') == (T, [Expr.parse('"t"."a" + 1')])


def test_a_call_becomes_a_column_and_columns_are_read_above_it() -> None:
    relation, exprs = expanded('generate_series(1, "t"."a") + "t"."b"', '"t"."a"')
    assert isinstance(relation, Expand)
    assert relation.input == T
    assert exprs[0].refs == {Ref(relation.alias, "f0"), Ref(relation.alias, "c1")}
    assert exprs[1] == Expr.ref(relation.alias, "c0")


def test_several_calls_advance_together_and_equal_ones_are_called_once() -> None:
    relation, exprs = expanded(
        "generate_series(1, 3)", "generate_series(1, 5)", "generate_series(1, 3)"
    )
    assert isinstance(relation, Expand)
    assert relation.expansion.columns == ("f0", "f1")
    assert relation.expansion.sql.startswith(
        "CROSS JOIN LATERAL ROWS FROM (generate_series(1, 3), generate_series(1, 5))"
    )
    assert exprs[0] == exprs[2] != exprs[1]


def test_a_call_inside_a_subquery_is_not_of_this_select_list() -> None:
    calls = SetReturningCalls(lambda: NAMES, str)
    assert calls.inside(Expr("abs(generate_series(1, 2))").tree)
    assert not calls.inside(Expr("(SELECT generate_series(1, 2))").tree)


def test_a_call_in_the_arguments_of_another_is_called_first() -> None:
    expand, (expr,) = expanded("abs(generate_series(1, generate_series(1, 2)))")
    assert isinstance(expand, Expand)
    assert isinstance(expand.input, Expand)
    assert expand.input.expansion.call == Expr("generate_series(1, 2)")
    assert expand.expansion.call.refs == {expand.input.columns[-1]}
    assert expr.refs == {expand.columns[-1]}


def test_calls_of_rows_are_refused() -> None:
    with pytest.raises(Unsupported, match="returns rows"):
        expanded('json_each("t"."a")')
