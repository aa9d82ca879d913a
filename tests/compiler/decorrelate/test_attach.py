"""Hosts and keyed subqueries."""

from __future__ import annotations

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Join, Scan
from millstream.compiler.decorrelate.attach import Host, KeyedSubquery, conjunction
from millstream.compiler.decorrelate.bindings import Correlated
from millstream.compiler.decorrelate.scope import Scope
from millstream.testing.planning_server import table

T = Scan(table("t", "id int4"), "t")
U = Scan(table("u", "a int4"), "u")
CORRELATION = Expr('"u"."a" = "t"."id"')


def test_recorded_joins_are_applied_in_their_order() -> None:
    host = Host(T, Scope())
    mark = host.mark_join(U, [CORRELATION], "mark")
    assert mark == Expr.ref("mark", "met")
    assert host.joined_aliases == {"u", "mark"}
    joined = host.apply_joins(T)
    assert isinstance(joined, Join)
    assert (joined.left, joined.right, joined.kind, joined.mark) == (
        T,
        U,
        "mark",
        Ref("mark", "met"),
    )


def test_the_outer_rows_of_groups_are_the_rows_that_are_grouped() -> None:
    assert Host(T, Scope()).outer_rows is T
    assert Host(None, Scope(), ungrouped_rows=U).outer_rows is U


def test_a_keyed_subquery_is_joined_by_the_columns_that_hold_its_keys() -> None:
    keyed = KeyedSubquery(
        Correlated(U, (), (CORRELATION,)), ((Expr.ref("u", "a"), Expr.ref("t", "id")),)
    )
    condition = keyed.join_condition("g", "k")
    assert condition is not None
    assert condition.refs == {Ref("g", "k0"), Ref("t", "id")}
    assert keyed.join_kind == "left"


def test_a_subquery_without_correlation_has_its_row_and_no_condition() -> None:
    keyed = KeyedSubquery(Correlated(U, (), ()), ())
    assert keyed.join_condition("g", "k") is None
    assert keyed.join_kind == "inner"


def test_a_conjunction_is_flat_and_of_nothing_none() -> None:
    assert conjunction([]) is None
    both = conjunction([Expr("a AND b"), Expr("c")])
    assert both is not None
    assert both.sql == "(a) AND (b) AND (c)"
