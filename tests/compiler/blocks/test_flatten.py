"""Flattening nested selects into branches."""

from __future__ import annotations

import pytest

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import (
    Expand,
    Expansion,
    Filter,
    Join,
    Named,
    Project,
    Relation,
    Scan,
    UnionAll,
)
from millstream.compiler.blocks.flatten import flatten
from millstream.compiler.blocks.region import OuterJoin
from millstream.errors import Unsupported
from millstream.testing.planning_server import pg_type, table

T = Scan(table("t", "a int4, b int4", key="a"), "t")
U = Scan(table("u", "a int4, b int4", key="a"), "u")


def doubled(input_: Scan, alias: str) -> Project:
    return Project(input_, (Named("x", Expr.parse(f'"{input_.alias}"."a" * 2')),), alias)


def union_of(*parts: Relation) -> UnionAll:
    return UnionAll(parts, ("x",), (pg_type("int4"),), "q")


def test_a_filter_over_a_projection_is_written_over_the_table() -> None:
    (flat,) = flatten(Filter(doubled(T, "p"), Expr.parse('"p"."x" > 1 AND "p"."x" < 9')))
    assert [str(condition) for condition in flat.region.conditions] == [
        '("t"."a" * 2) > 1',
        '("t"."a" * 2) < 9',
    ]


def test_a_join_is_distributed_over_the_parts_of_a_union() -> None:
    flats = flatten(Join(Scan(T.table, "o"), union_of(doubled(T, "p"), doubled(U, "r"))))
    assert [[item.alias for item in flat.region.scans()] for flat in flats] == [
        ["o", "t"],
        ["o", "u"],
    ]


def test_the_columns_of_a_union_are_cast_to_its_types() -> None:
    (first, _) = flatten(union_of(doubled(T, "p"), doubled(U, "r")))
    assert first.outputs[Ref("q", "x")].sql.upper().startswith("CAST(")


def test_a_column_computed_below_an_outer_join_stays_a_column_above_it() -> None:
    (flat,) = flatten(Join(T, doubled(U, "p"), Expr.parse('"t"."a" = "p"."x"'), "left"))
    (outer,) = flat.region.items
    assert isinstance(outer, OuterJoin)
    assert flat.outputs[Ref("p", "x")] == Expr.ref("p", "x")
    assert [str(condition) for condition in outer.on] == ['"t"."a" = ("u"."a" * 2)']
    assert outer.definitions() == {Ref("p", "x"): Expr.parse('"u"."a" * 2')}


def test_the_preserved_side_of_a_left_join_is_substituted() -> None:
    (flat,) = flatten(Join(doubled(T, "p"), U, Expr.parse('"u"."a" = "p"."x"'), "left"))
    assert flat.outputs[Ref("p", "x")] == Expr.parse('"t"."a" * 2')


def test_a_union_on_the_optional_side_is_refused() -> None:
    union = union_of(doubled(T, "p"), doubled(U, "r"))
    other = Scan(T.table, "o")
    with pytest.raises(Unsupported, match="UNION ALL"):
        flatten(Join(other, union, Expr.parse('"o"."a" = "q"."x"'), "left"))
    assert len(flatten(Join(union, other, Expr.parse('"o"."a" = "q"."x"'), "left"))) == 2


def test_a_function_is_called_while_the_table_of_its_arguments_is_read() -> None:
    call = Expansion("f", ("n",), Expr.parse('generate_series(1, "u"."a")'))
    (flat,) = flatten(Expand(Join(T, U), call, "e"))
    assert [len(scan.expansions) for scan in flat.region.scans()] == [0, 1]


def test_a_function_over_two_tables_is_refused() -> None:
    call = Expansion("f", ("n",), Expr.parse('generate_series("t"."a", "u"."a")'))
    with pytest.raises(Unsupported, match="several tables"):
        flatten(Expand(Join(T, U), call, "e"))
