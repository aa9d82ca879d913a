"""Columns of a null-extended side are NULL where that side has no match, whatever they stand for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.law.conftest import Law, law

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Join, Named, Project, Relation, Scan
from millstream.algebra.table import Table
from millstream.algebra.types import Column, PgType
from millstream.plan.flatten import flatten
from millstream.plan.region import Atoms

__all__ = ["law"]  # a fixture

INT4 = PgType(23, "integer", "int4")


def scan(alias: str) -> Scan:
    return Scan(Table(1, "public", alias, (Column("id", INT4),), key=("id",)), alias)


def with_constant(input: Relation, alias: str) -> Project:
    return Project(input, (Named("one", Expr("1")),), alias)


def homes_of(relation: Relation, ref: Ref) -> frozenset[str]:
    """Where a column of a relation is computed."""
    (flat,) = flatten(relation)
    return Atoms(flat.region).homes(flat.outputs[ref])


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


# -- the same as PostgreSQL has it -------------------------------------------------------------

SETUP = """
    CREATE TABLE k (id int PRIMARY KEY, f boolean, arr int[]);
    CREATE TABLE t (id int PRIMARY KEY, n int, s text, b boolean);
    CREATE TABLE u (id int PRIMARY KEY, t int, v int);
    CREATE TABLE e (id int PRIMARY KEY, n int);
    CREATE VIEW vt AS SELECT id, n, true AS hit, 'c' AS c FROM t;
    INSERT INTO k VALUES (1, true, '{1,2}'), (2, false, '{}'), (3, NULL, NULL);
    INSERT INTO t VALUES (1, 1, 'x', true), (2, 1, NULL, NULL), (4, 4, 'y', false);
    INSERT INTO u VALUES (1, 1, 5), (2, 9, 6), (3, 4, NULL);
"""
CHANGES = (
    "INSERT INTO t VALUES (5, 2, 'q', true); DELETE FROM t WHERE id = 1; INSERT INTO e VALUES (1, 1)",
    "DELETE FROM t WHERE id <> 5; UPDATE u SET t = 5; DELETE FROM e; INSERT INTO k VALUES (9, true, '{9}')",
)
QUERIES = dict(re.findall(r"-- name: (.+)\n((?:.+\n)+)", Path(__file__).with_name("null_extended.sql").read_text()))


@pytest.mark.spark
def test_columns_of_a_null_extended_side_are_null_where_it_has_no_match(law: Law) -> None:
    """A constant of that side named no table, so it was computed beside any and showed in every row.

    `k LEFT JOIN (SELECT n, true AS hit FROM t) a` was true for every k; a FULL JOIN was refused by an inner error.
    """
    law.change(SETUP)
    law.holds_for(QUERIES, CHANGES)
