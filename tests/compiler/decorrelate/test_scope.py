"""Name resolution."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Filter, Join, Named, Project, Scan
from millstream.compiler.decorrelate.scope import Scope, is_never_null, refuse_unresolved
from millstream.errors import Unsupported
from millstream.testing.planning_server import table

C_ID = Ref("c", "id")
O_TOTAL = Ref("o", "total")


def nested() -> Scope:
    """Return the scope of a subquery over o, inside a query over c."""
    outer = Scope().with_columns("c", ["id"], [C_ID])
    return Scope(outer).with_columns("o", ["total"], [O_TOTAL])


def expression(text: str) -> exp.Expression:
    node = parsed(f"SELECT {text}").expressions[0]
    assert isinstance(node, exp.Expression)
    return node


def test_an_own_column_is_no_outer_reference() -> None:
    scope = nested()
    assert scope.resolve(expression("o.total + 1")).refs == {O_TOTAL}
    assert scope.outer_refs.found == set()


def test_an_outer_column_is_recorded_by_find_and_not_by_peek() -> None:
    scope = nested()
    assert scope.peek("c", "id") == Expr(C_ID.sql)
    assert scope.outer_refs.found == set()
    assert scope.find("c", "id") == Expr(C_ID.sql)
    assert scope.outer_refs.found == {C_ID}


def test_an_outer_column_with_a_binding_is_read_from_it_and_not_recorded() -> None:
    scope = nested().with_bindings({Expr(C_ID.sql): Expr.ref("d", "k0")}, {})
    assert scope.find("c", "id") == Expr.ref("d", "k0")
    assert scope.outer_refs.found == set()


def test_a_binding_that_is_stored_as_text_is_cast_back() -> None:
    scope = nested().with_bindings(
        {Expr(C_ID.sql): Expr.ref("d", "k0")}, {Expr(C_ID.sql): "numeric"}
    )
    cast = scope.peek("c", "id")
    assert cast is not None
    assert cast.refs == {Ref("d", "k0")}
    assert cast.sql.startswith("CAST(")


def test_columns_of_using_come_first_and_once() -> None:
    left = Scope().with_columns("a", ["x", "k"], [Ref("a", "x"), Ref("a", "k")])
    right = Scope().with_columns("b", ["k", "y"], [Ref("b", "k"), Ref("b", "y")])
    joined = left.with_join(right, {"k": Expr.ref("a", "k")})
    assert [name for name, _ in joined.output] == ["k", "x", "y"]
    assert joined.unqualified("k") == Expr.ref("a", "k")
    assert joined.find("b", "k") == Expr.ref("b", "k")


def test_renamed_columns_are_renamed_in_columns_output_and_bindings() -> None:
    scope = nested().with_bindings({Expr(C_ID.sql): Expr.ref("d", "k0")}, {})
    scope = scope.with_renamed({O_TOTAL: Ref("x", "c0"), Ref("d", "k0"): Ref("x", "c1")})
    assert scope.find("o", "total") == Expr.ref("x", "c0")
    assert scope.unqualified("total") == Expr.ref("x", "c0")
    assert scope.find("c", "id") == Expr.ref("x", "c1")


def test_an_early_condition_is_ready_when_all_its_columns_are_in_scope() -> None:
    total, price = expression("o.total > 0"), expression("o.total > p.price")
    scope = nested().with_early_conditions([total, price])
    assert scope.ready_conditions() == [total]
    assert scope.with_columns("p", ["price"], [Ref("p", "price")]).ready_conditions() == [
        total,
        price,
    ]
    assert scope.with_early_conditions([price]).ready_conditions() == []


def test_a_larger_scope_leaves_the_smaller_one_as_it_is_and_shares_its_outer_columns() -> None:
    scope = nested()
    larger = scope.with_columns("p", ["price"], [Ref("p", "price")])
    assert scope.find("p", "price") is None
    assert larger.find("p", "price") == Expr.ref("p", "price")
    assert larger.find("c", "id") == Expr(C_ID.sql)
    assert scope.outer_refs.found == {C_ID}
    assert larger.without_outer_refs().outer_refs.found == set()


def test_a_hidden_column_is_found_by_its_name_and_is_not_part_of_the_output() -> None:
    scope = nested().with_hidden_column(("hidden", "now"), Ref("clock", "now"))
    assert scope.find("hidden", "now") == Expr.ref("clock", "now")
    assert [name for name, _ in scope.output] == ["total"]


@pytest.mark.parametrize(("text", "construct"), [("o.ctid", "system column"), ("o.*", "whole row")])
def test_system_columns_and_whole_rows_are_refused(text: str, construct: str) -> None:
    with pytest.raises(Unsupported, match=construct):
        nested().resolve(expression(text))


def test_a_column_is_never_null_unless_an_outer_join_extends_it() -> None:
    left = Scan(table("l", "id int4, x int4", key="id"), "l")
    right = Scan(table("r", "id int4", key="id"), "r")
    on = Expr('"l"."id" = "r"."id"')
    assert is_never_null(left, Ref("l", "id"))
    assert not is_never_null(left, Ref("l", "x"))
    assert is_never_null(Join(left, right, on), Ref("r", "id"))
    assert is_never_null(Join(left, right, on, "left"), Ref("l", "id"))
    assert not is_never_null(Join(left, right, on, "left"), Ref("r", "id"))
    assert not is_never_null(Join(left, right, on, "full"), Ref("l", "id"))


def test_a_projected_column_is_never_null_if_its_input_is() -> None:
    scan = Scan(table("l", "id int4, x int4", key="id"), "l")
    named = (Named("i", Expr.ref("l", "id")), Named("y", Expr('"l"."id" + 1')))
    project = Project(scan, named, "q")
    assert is_never_null(project, Ref("q", "i"))
    assert not is_never_null(project, Ref("q", "y"))


def test_a_relation_that_refers_too_far_out_is_refused() -> None:
    scan = Scan(table("l", "id int4"), "l")
    with pytest.raises(Unsupported, match="more than the query directly around it"):
        refuse_unresolved(lambda: Filter(scan, Expr('"far"."x" > 0')))
