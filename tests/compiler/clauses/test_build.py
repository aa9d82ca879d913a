"""Canonical texts become relations: the order of the clauses, aliases, views and WITH queries."""

from __future__ import annotations

from collections.abc import Callable

from millstream.algebra.relation import Aggregate, Filter, Join, Project, Relation, Scan, UnionAll
from millstream.algebra.table import ConstantRows

Build = Callable[[str], Relation]


def operators(relation: Relation) -> list[str]:
    return [type(node).__name__ for node in relation.walk()]


def scans(relation: Relation) -> list[Scan]:
    return [node for node in relation.walk() if isinstance(node, Scan)]


def test_the_clauses_are_evaluated_in_the_order_of_sql(build: Build) -> None:
    relation = build(
        "SELECT DISTINCT u.a FROM u WHERE (u.b > 0) GROUP BY u.a HAVING (count(*) > 1) ORDER BY u.a LIMIT 3"
    )
    # From the top: LIMIT, DISTINCT (an aggregate by all columns), the select list, HAVING, GROUP
    # BY, WHERE, FROM.
    assert operators(relation) == [
        "Project", "Limit", "Project", "Aggregate", "Project", "Filter", "Aggregate", "Filter", "Scan",
    ]  # fmt: skip


def test_each_use_of_a_table_has_an_alias_of_its_own(build: Build) -> None:
    relation = build("SELECT q.a FROM ( SELECT u.a FROM u) q, ( SELECT u.a FROM u) r, u")
    assert len({scan.alias for scan in scans(relation)}) == 3


def test_a_view_is_built_in_place(build: Build) -> None:
    relation = build("SELECT big.id FROM big WHERE (big.id > 5)")
    assert [scan.table.title for scan in scans(relation)] == ["public.t"]
    assert operators(relation) == ["Project", "Filter", "Project", "Filter", "Scan"]


def test_a_with_query_is_built_for_each_use_and_its_column_names_win(build: Build) -> None:
    relation = build("WITH x(p) AS ( SELECT u.a FROM u) SELECT x.p, y.p AS q FROM x, x y")
    assert len(scans(relation)) == 2
    assert [ref.column for ref in relation.columns] == ["p", "q"]


def test_a_query_without_from_reads_one_constant_row(build: Build) -> None:
    (scan,) = scans(build("SELECT 1 AS one"))
    assert scan.table.single
    assert isinstance(scan.table, ConstantRows)


def test_where_filters_before_a_lateral_but_not_below_a_full_join(build: Build) -> None:
    lateral = ", LATERAL ( SELECT u.b FROM u WHERE (u.a = t.a) LIMIT 1) q"
    early = build(f"SELECT t.id FROM t{lateral} WHERE (t.b > 0)")
    assert isinstance(early, Project)
    assert isinstance(early.input, Join)
    assert isinstance(early.input.left, Filter)
    late = build(f"SELECT t.id FROM t FULL JOIN w ON ((w.a = t.a)){lateral} WHERE (t.b > 0)")
    assert isinstance(late, Project)
    assert isinstance(late.input, Filter)


def test_grouping_sets_are_a_union_of_one_aggregate_each(build: Build) -> None:
    relation = build("SELECT u.a, count(*) AS n FROM u GROUP BY ROLLUP(u.a)")
    assert isinstance(relation, UnionAll)
    groups = [
        node for part in relation.parts for node in part.walk() if isinstance(node, Aggregate)
    ]
    assert [len(node.keys) for node in groups] == [1, 0]


def test_a_set_operation_is_named_after_its_first_part(build: Build) -> None:
    relation = build("SELECT u.a FROM u UNION ALL SELECT w.b FROM w")
    assert [ref.column for ref in relation.columns] == ["a"]


def test_outer_columns_that_equalities_bind_need_no_bindings(build: Build) -> None:
    by_equality = build(
        "SELECT t.id, q.b FROM t, LATERAL ( SELECT u.b FROM u WHERE (u.a = t.a) LIMIT 2) q"
    )
    assert [scan.table.title for scan in scans(by_equality)] == ["public.t", "public.u"]
    by_order = build(
        "SELECT t.id, q.b FROM t, LATERAL ( SELECT u.b FROM u WHERE (u.a > t.a) LIMIT 2) q"
    )
    assert [scan.table.title for scan in scans(by_order)] == ["public.t", "public.u", "public.t"]
