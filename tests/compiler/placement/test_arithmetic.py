"""Arithmetic below a sum is split: Spark's number, or the operands, over which PostgreSQL computes
the same.
"""

from __future__ import annotations

import pytest

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.compiler.blocks.region import BranchNames, Region
from millstream.compiler.placement.arithmetic import ArithmeticArgument, split_arithmetic
from millstream.compiler.placement.place import Placer
from millstream.errors import Unsupported
from millstream.testing.planning_server import PlanningServerDouble, table

T = Scan(table("t", "id int4, n numeric, f float8", key="id"), "t")
U = Scan(table("u", "id int4, q int4", key="id"), "u")


def split(text: str) -> ArithmeticArgument | Unsupported | None:
    expression = Expr.parse(text)
    placer = Placer(BranchNames(Region((T, U))), [expression], PlanningServerDouble())
    return split_arithmetic(placer, expression)


def test_spark_tries_the_operator_and_postgresql_has_the_same_over_the_operands() -> None:
    argument = split('"t"."n" * "u"."q"')
    assert isinstance(argument, ArithmeticArgument)
    assert "TRY_MULTIPLY(" in argument.value.expr.sql
    assert argument.expression == "(({p} ->> 'p0')::numeric * ({p} ->> 'p1')::integer)"


def test_a_number_is_0_in_spark_exactly_when_its_operands_are_sent() -> None:
    argument = split('"t"."n" + "u"."q"')
    assert isinstance(argument, ArithmeticArgument)
    value, operands = argument.value.expr.sql, argument.operands.expr.sql
    tried = value.removeprefix("COALESCE(").split(", CASE WHEN ")[0]
    present = value.split("CASE WHEN ")[1].split(" THEN CAST(0 AS ")[0]
    assert operands.startswith(
        f"CASE WHEN ({tried}) IS NULL AND {present} THEN TO_JSON(NAMED_STRUCT('p0', "
    )


def test_a_numeric_travels_as_a_number_or_as_its_text() -> None:
    expression = Expr.parse('"t"."n" * "u"."q"')
    placer = Placer(BranchNames(Region((T, U))), [expression], PlanningServerDouble())
    split_arithmetic(placer, expression)
    assert [leaf.use for leaf in placer.leaves["t"].values()] == ["tried", "untried"]
    assert [leaf.use for leaf in placer.leaves["u"].values()] == ["number"]


def test_a_chain_is_split_operator_by_operator_and_keeps_its_signs() -> None:
    argument = split('- ("t"."n" * "u"."q") - "u"."id"')
    assert isinstance(argument, ArithmeticArgument)
    assert argument.expression == (
        "((- (({p} ->> 'p0')::numeric * ({p} ->> 'p1')::integer)) - ({p} ->> 'p2')::integer)"
    )


@pytest.mark.parametrize(
    "text",
    [
        '"t"."n" * 2',  # over one table: PostgreSQL computes it while reading
        '"t"."id" * "u"."q"',  # integers: no digits to lose
        'abs("t"."n" * "u"."q")',  # more than operators over numbers
    ],
)
def test_other_expressions_are_not_split(text: str) -> None:
    assert split(text) is None


def test_a_float_is_refused_or_not_split_but_never_tried() -> None:
    assert not isinstance(split('"t"."n" * "u"."q" * "t"."f"'), ArithmeticArgument)
