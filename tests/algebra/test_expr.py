"""Scalar expressions: equality of texts, references, substitution, and the conditions of an AND."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.expr import (
    Expr,
    Ref,
    all_of,
    alternatives,
    any_of,
    conjuncts,
    equated,
    is_quantified,
    is_record,
    operands,
    parenthesised,
    unwrapped,
)


def test_expressions_are_equal_if_their_printed_texts_are() -> None:
    assert Expr.parse('"o"."q"*2') == Expr.parse('"o"."q"  *  2')
    assert Expr.parse("1") != Expr.parse("2")


def test_the_shared_tree_is_not_the_one_that_is_handed_out_for_changes() -> None:
    expression = Expr.parse('"o"."q" + 1')
    expression.node.set("this", exp.Literal.number(5))
    assert expression.tree.sql() == '"o"."q" + 1'


def test_only_a_bare_column_is_a_reference() -> None:
    assert Expr.parse('("o"."q")').as_ref == Ref("o", "q")
    assert Expr.parse('"o"."q" + 0').as_ref is None


def test_a_substituted_expression_keeps_its_precedence() -> None:
    product = Expr.parse('"o"."q" * 2')
    assert product.substitute({Ref("o", "q"): Expr("a + b")}).sql == "(a + b) * 2"


def test_a_substituted_row_is_compared_as_one_value() -> None:
    comparison = Expr.parse('"o"."q" = "o"."r"')
    assert "AS RECORD" in comparison.substitute({Ref("o", "q"): Expr.parse("ROW(a, b)")}).sql


def test_a_quote_in_a_name_survives() -> None:
    ref = Ref('a"b', "c")
    assert Expr(ref.sql).refs == {ref}


def test_conditions_that_all_alternatives_share_are_conjuncts() -> None:
    assert [part.sql for part in conjuncts(Expr("x AND ((a AND b) OR (a AND c))"))] == [
        "x",
        "a",
        "(b) OR (c)",
    ]


def test_an_alternative_with_nothing_but_the_shared_condition_makes_the_others_irrelevant() -> None:
    assert [part.sql for part in conjuncts(Expr("(a AND b) OR a"))] == ["a"]


def test_an_or_without_a_shared_condition_is_one_conjunct() -> None:
    assert [part.sql for part in conjuncts(Expr("a OR b"))] == ["a OR b"]


def test_alternatives_are_found_at_any_depth_and_and_is_not_entered() -> None:
    assert [part.sql for part in alternatives(Expr("a OR (b OR (c AND d))"))] == [
        "a",
        "b",
        "c AND d",
    ]


def test_a_long_chain_is_taken_apart_without_recursion() -> None:
    chain = exp.Or(this=exp.column("x"), expression=exp.column("x"))
    for _ in range(5000):
        chain = exp.Or(this=chain, expression=exp.column("x"))
    assert len(operands(chain, exp.Or)) == 5002


@pytest.mark.parametrize(
    "text", ["a = b", "(a) = ((b))", "NOT (a IS DISTINCT FROM b)", "a IS NOT DISTINCT FROM b"]
)
def test_both_sides_of_an_equality_are_found(text: str) -> None:
    assert equated(Expr.parse(text)) == (Expr("a"), Expr("b"))


@pytest.mark.parametrize(
    "text", ["a > b", "NOT (a = b)", "a IS DISTINCT FROM b", "a = ANY(b)", "ROW(a, b) = ROW(c, d)"]
)
def test_other_conditions_are_no_equality(text: str) -> None:
    assert equated(Expr.parse(text)) is None


def test_a_comparison_with_any_of_an_array_is_quantified() -> None:
    assert is_quantified(Expr("a = ANY(b)").tree)
    assert not is_quantified(Expr("a = b").tree)


def test_an_array_of_rows_is_a_record_and_an_array_of_numbers_is_none() -> None:
    assert is_record(Expr("ARRAY[ROW(1, 2)]").tree)
    assert not is_record(Expr("ARRAY[1, 2]").tree)


def test_one_condition_needs_no_connective() -> None:
    assert all_of([Expr("a")]).sql == "a"
    assert any_of([Expr("a"), Expr("b")]).sql == "(a) OR (b)"


def test_a_subquery_is_evaluated_late_and_a_column_named_select_is_not() -> None:
    assert Expr.parse("(SELECT 1)").has_subquery
    assert not Expr.parse('"t"."SELECT"').has_subquery


def test_parentheses_are_added_once_and_removed_at_any_depth() -> None:
    assert parenthesised(Expr("a + b").node).sql() == "(a + b)"
    assert parenthesised(Expr("a").node).sql() == "a"
    assert unwrapped(Expr("((a))").tree).sql() == "a"
