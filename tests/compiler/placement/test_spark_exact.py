"""What Spark computes across tables: each expression is placed, or its refusal is returned."""

from __future__ import annotations

import pytest

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.compiler.blocks.region import BranchNames, Region
from millstream.compiler.placement.place import Placer
from millstream.compiler.placement.placement import Placement
from millstream.errors import Unsupported
from millstream.testing.planning_server import PlanningServerDouble, table

T = Scan(table("t", "id int4, m numeric(9,2), f float8, word text", key="id"), "t")
U = Scan(table("u", "id int4, x int4, word text", key="id"), "u")


def place(text: str) -> Placement | Unsupported:
    expression = Expr.parse(text)
    placer = Placer(BranchNames(Region((T, U))), 0, [expression], PlanningServerDouble())
    return placer.place(expression, "carry")


@pytest.mark.parametrize(
    ("text", "spark"),
    [
        ('"t"."id" > "u"."x"', '"i0"."c0" > "i1"."c0"'),
        ('"t"."id" > 1 AND "t"."id" = "u"."x"', '("i0"."c0") AND ("i0"."c1" = "i1"."c0")'),
        ('"t"."m" + "u"."x"', '("i0"."c0") + ("i1"."c0")'),
        ('- ("t"."m" * "u"."x")', '-(("i0"."c0") * ("i1"."c0"))'),
        ('COALESCE("t"."id", "u"."x")', 'COALESCE("i0"."c0", "i1"."c0")'),
        ('CASE WHEN "t"."id" > "u"."x" THEN "u"."x" END', 'CASE WHEN "i0"."c0" > "i1"."c0" THEN "i1"."c0" END'),
    ],
)
def test_spark_computes_it(text: str, spark: str) -> None:
    placed = place(text)
    assert isinstance(placed, Placement)
    assert placed.expr.sql == spark


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('starts_with("t"."word", "u"."word")', "Spark does not compute it exactly as PostgreSQL does."),
        ('"t"."word" < "u"."word"', "Its order or equality is not the same in Spark."),
        ('"t"."f" + "u"."x"', "Floating-point arithmetic overflows silently in Spark."),
        ('CASE "t"."id" WHEN "u"."x" THEN 1 END', "Write it as CASE WHEN x = 1 THEN ..."),
        ('COALESCE("t"."word", "u"."x"::text) = "t"."word" AND NOT starts_with("t"."word", "u"."word")', "Spark"),
        ('COALESCE(- ("t"."f" * "u"."x"), 1)', "Floating-point arithmetic"),
        ('CASE WHEN "t"."word" < "u"."word" THEN 1 END', "Its order or equality"),
    ],
)  # fmt: skip
def test_an_operator_that_spark_computes_otherwise_is_refused_at_any_depth(text: str, reason: str) -> None:
    refused = place(text)
    assert isinstance(refused, Unsupported)
    assert reason in refused.detail
