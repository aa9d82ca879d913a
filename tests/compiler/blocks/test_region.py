"""Columns of a null-extended side are NULL where that side has no match, whatever they stand for."""

from __future__ import annotations

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Join, Named, Project, Relation, Scan
from millstream.algebra.table import SourceTable
from millstream.algebra.types import Column, PgType
from millstream.compiler.blocks.flatten import flatten
from millstream.compiler.blocks.region import BranchNames

INT4 = PgType(23, "integer", "int4")


def scan(alias: str) -> Scan:
    return Scan(
        SourceTable((Column("id", INT4),), oid=1, schema="public", name=alias, key=("id",)), alias
    )


def with_constant(input: Relation, alias: str) -> Project:
    return Project(input, (Named("one", Expr("1")),), alias)


def homes_of(relation: Relation, ref: Ref) -> frozenset[str]:
    """Where a column of a relation is computed."""
    (flat,) = flatten(relation)
    return BranchNames(flat.region).homes(flat.outputs[ref])


def test_a_constant_of_the_null_extended_side_belongs_to_a_table_of_that_side() -> None:
    left = Join(scan("k"), with_constant(scan("t"), "q"), Expr("true"), "left")
    assert homes_of(left, Ref("q", "one")) == {"t"}


def test_a_constant_of_each_side_of_a_full_join_belongs_to_its_side() -> None:
    full = Join(with_constant(scan("k"), "p"), with_constant(scan("t"), "q"), Expr("true"), "full")
    assert homes_of(full, Ref("p", "one")) == {"k"}
    assert homes_of(full, Ref("q", "one")) == {"t"}


def test_a_constant_over_a_full_join_belongs_to_both_of_its_sides() -> None:
    inner = Join(scan("t"), scan("u"), Expr("true"), "full")
    left = Join(scan("k"), with_constant(inner, "q"), Expr("true"), "left")
    assert homes_of(left, Ref("q", "one")) == {"t", "u"}


def test_a_constant_of_the_preserved_side_belongs_to_no_table() -> None:
    left = Join(with_constant(scan("k"), "p"), scan("t"), Expr("true"), "left")
    assert homes_of(left, Ref("p", "one")) == frozenset()
