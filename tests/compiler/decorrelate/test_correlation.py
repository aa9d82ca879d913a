"""Outer columns of a subquery, and the equalities that tie it to them."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Scan
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.decorrelate.correlation import (
    correlate_with,
    correlation_equalities,
    is_correlated_by_equalities,
    outer_columns,
    refuse_outer_aggregates,
)
from millstream.compiler.decorrelate.scope import Scope
from millstream.errors import Unsupported
from millstream.testing.planning_server import table

AGGREGATES = Aggregates(lambda: frozenset[str]())


def outer() -> Scope:
    scope = Scope().with_columns("c", ["id", "bound"], [Ref("c", "id"), Ref("c", "bound")])
    return scope


def select(text: str) -> exp.Select:
    node = parsed(text)
    assert isinstance(node, exp.Select)
    return node


def test_outer_columns_are_those_whose_alias_the_query_does_not_have() -> None:
    query = select(
        "SELECT o.id FROM o WHERE o.total > c.bound AND o.customer = c.id AND o.x < c.id"
    )
    assert set(outer_columns(query, outer())) == {Expr.ref("c", "bound"), Expr.ref("c", "id")}


def test_an_alias_inside_hides_the_outer_one() -> None:
    assert outer_columns(select("SELECT c.id FROM o AS c WHERE c.id > 0"), outer()) == {}


def test_a_column_merged_by_using_is_an_inner_one() -> None:
    assert outer_columns(select("SELECT id FROM o JOIN p USING (id)"), outer()) == {}


@pytest.mark.parametrize(
    ("text", "is_keyed"),
    [
        ("SELECT o.id FROM o WHERE o.customer = c.id", True),
        ("SELECT o.id FROM o WHERE c.id + 1 = o.customer AND o.total > 0", True),
        ("SELECT o.customer, max(o.id) FROM o WHERE o.customer = c.id GROUP BY o.customer", True),
        ("SELECT o.id FROM o WHERE o.customer > c.id", False),
        ("SELECT o.id FROM o WHERE o.customer = c.id AND o.total > c.bound", False),
        ("SELECT o.id + c.id FROM o WHERE o.customer = c.id", False),
        ("SELECT o.id FROM o WHERE c.id = 3", False),
        ("SELECT o.id FROM o WHERE o.customer + c.id = c.bound", False),
        ("SELECT max(o.id) FROM o WHERE o.customer = c.id", False),
        ("SELECT o.id FROM o", False),
    ],
)
def test_a_subquery_is_keyed_if_equalities_are_its_only_outer_references(
    text: str, is_keyed: bool
) -> None:
    assert is_correlated_by_equalities(select(text), outer(), AGGREGATES) is is_keyed


def test_an_aggregate_over_outer_columns_only_is_refused() -> None:
    query = select("SELECT o.id FROM o WHERE o.total < sum(c.bound)")
    with pytest.raises(Unsupported, match="aggregate of the outer query"):
        refuse_outer_aggregates(outer_columns(query, outer()), query, outer(), AGGREGATES)
    mixed = select("SELECT sum(o.total + c.bound) FROM o")
    refuse_outer_aggregates(outer_columns(mixed, outer()), mixed, outer(), AGGREGATES)


def test_equalities_are_split_into_inner_and_outer_side() -> None:
    scan = Scan(table("o", "id int4, customer int4"), "o")
    equal = Expr('"c"."id" = "o"."customer"')
    assert correlation_equalities([equal], scan) == [
        (Expr.ref("o", "customer"), Expr.ref("c", "id"))
    ]
    assert correlation_equalities([equal, Expr('"o"."id" > "c"."id"')], scan) is None
    assert correlation_equalities([Expr('"o"."id" = "o"."customer"')], scan) is None


def test_a_rewritten_correlation_treats_nulls_as_before() -> None:
    a, b = Expr.ref("a", "x"), Expr.ref("b", "y")
    assert isinstance(correlate_with(Expr("p = q"), a, b).tree, exp.EQ)
    assert isinstance(
        correlate_with(Expr("p IS NOT DISTINCT FROM q"), a, b).tree, exp.NullSafeEQ | exp.Not
    )
