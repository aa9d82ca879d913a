"""Blocks without a head: columns that Spark carries, and final expressions that PostgreSQL
evaluates.
"""

from __future__ import annotations

from tests.compiler.conftest import planned

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.types import Column
from millstream.compiler.blocks.stateless_block import UNKNOWN_TYPE, cast_suffix, qualify_columns
from millstream.testing.planning_server import pg_type


def test_a_column_that_occurs_twice_is_read_once() -> None:
    [block] = planned(
        "SELECT t.id, t.id AS again, t.id + t.id AS twice FROM public.t", "id again twice"
    )
    assert [column.name for column in block.columns] == ["x0", "x1"]
    assert [output.expr for output in block.outputs][:2] == [
        '(d."x0")::integer',
        '(d."x0")::integer',
    ]


def test_the_parts_of_a_union_are_branches_with_the_same_columns() -> None:
    [block] = planned("SELECT t.id FROM public.t UNION ALL SELECT u.a FROM public.u", "x")
    assert len(block.branches) == 2
    assert [column.name for column in block.columns] == ["x0"]
    assert block.key.columns == ()


def test_the_key_of_the_only_table_is_the_key_of_the_block() -> None:
    [block] = planned("SELECT t.a, t.id FROM public.t", "a id")
    assert block.key.columns == ("id",)
    [block] = planned("SELECT t.a FROM public.t", "a")
    assert block.key.columns == ()


def test_only_columns_are_replaced_and_no_text_that_looks_like_one() -> None:
    expression = Expr.parse('"t"."a" || \' "t"."a" \' || "t"."b"')
    replaced = qualify_columns(expression, {Ref("t", "a"): Expr('d."x0"')})
    assert replaced == 'd."x0" || \' "t"."a" \' || "t"."b"'


def test_an_output_is_cast_to_its_type_if_that_is_known() -> None:
    assert cast_suffix(Column("x", pg_type("int8"))) == "::bigint"
    assert cast_suffix(Column("x", UNKNOWN_TYPE)) == ""
