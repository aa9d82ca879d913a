"""The decimal of Spark that holds a result."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.expr import Expr
from millstream.algebra.wire import number_wire_of
from millstream.compiler.placement.decimals.result import (
    Travels,
    common_decimal,
    digits_of_wire,
    result_wire,
)
from millstream.errors import Unsupported
from millstream.testing.planning_server import pg_type


def travels(type_: str) -> Travels:
    wire = number_wire_of(pg_type(type_))
    assert wire is not None
    return wire, pg_type(type_)


@pytest.mark.parametrize(
    ("operator", "one", "other", "result"),
    [
        (exp.Add(), "numeric(12,2)", "numeric(8,4)", "decimal(15,4)"),
        (exp.Mul(), "numeric(12,2)", "numeric(8,4)", "decimal(21,6)"),
        (exp.Sub(), "int4", "numeric(3,1)", "decimal(12,1)"),
        (exp.Add(), "numeric", "numeric", "decimal(38,18)"),
        (exp.Add(), "int2", "int8", "bigint"),
    ],
)
def test_a_result_has_the_digits_that_it_can_need(
    operator: exp.Expression, one: str, other: str, result: str
) -> None:
    found = result_wire(operator, travels(one), travels(other))
    assert not isinstance(found, Unsupported)
    assert found[0].spark == result


@pytest.mark.parametrize(
    ("operator", "one", "other"), [("*", "numeric", "numeric"), ("+", "float8", "numeric")]
)
def test_what_no_decimal_holds_is_refused(operator: str, one: str, other: str) -> None:
    node = Expr.parse(f'"t"."x" {operator} "u"."y"').node
    assert isinstance(result_wire(node, travels(one), travels(other)), Unsupported)


def test_alternatives_have_a_decimal_in_common() -> None:
    digits = [
        digits_of_wire(*travels(type_)) for type_ in ("numeric(12,2)", "int4", "numeric(8,6)")
    ]
    assert common_decimal(digits).spark == "decimal(16,6)"
