"""WITH queries that read themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlglot import exp
from tests.compiler.conftest import Integers

from millstream.algebra.dialect import parsed
from millstream.algebra.relation import Aggregate, Recursion, Relation, Scan
from millstream.algebra.table import SelfReference
from millstream.compiler.clauses.build import build_relation
from millstream.compiler.clauses.recursive.recursion import reads_itself

Build = Callable[[str], Relation]
REACHED = """
    WITH RECURSIVE r(x) AS ( SELECT u.a FROM u {union} SELECT {distinct} u.b FROM r JOIN u ON ((u.a = r.x)))
    SELECT r.x FROM r
"""


def recursion_of(relation: Relation) -> Recursion:
    return next(node for node in relation.walk() if isinstance(node, Recursion))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("WITH RECURSIVE r AS (SELECT 1 UNION SELECT n FROM r) SELECT 1", True),
        ("WITH RECURSIVE r AS (SELECT 1 UNION SELECT n FROM s.r) SELECT 1", False),
        ("WITH RECURSIVE r AS (SELECT n FROM t) SELECT 1", False),
        ("WITH RECURSIVE r AS (WITH r AS (SELECT 1 AS n) SELECT n FROM r) SELECT 1", False),
    ],
)
def test_a_query_reads_itself_by_its_name_unless_that_is_of_another_schema_or_an_inner_with(
    text: str, answer: bool
) -> None:
    cte = parsed(text).find(exp.CTE)
    assert cte is not None
    assert reads_itself(cte) is answer


def test_base_and_step_are_built_apart_and_the_step_reads_the_recursion(build: Build) -> None:
    recursion = recursion_of(build(REACHED.format(union="UNION ALL", distinct="")))
    assert not recursion.each_once
    base = [node.table.title for node in recursion.base.walk() if isinstance(node, Scan)]
    step = [node.table for node in recursion.step.walk() if isinstance(node, Scan)]
    assert base == ["public.u"]
    assert [table.depth if isinstance(table, SelfReference) else None for table in step] == [
        1,
        None,
    ]


def test_union_makes_a_distinct_of_the_step_superfluous(build: Build) -> None:
    union = recursion_of(build(REACHED.format(union="UNION", distinct="DISTINCT")))
    assert union.each_once
    assert not any(isinstance(node, Aggregate) for node in union.step.walk())
    union_all = recursion_of(build(REACHED.format(union="UNION ALL", distinct="DISTINCT")))
    assert any(isinstance(node, Aggregate) for node in union_all.step.walk())


def test_two_uses_of_one_recursion_have_one_depth(build: Build) -> None:
    relation = build(
        REACHED.format(union="UNION", distinct="").replace("FROM r\n", "FROM r, r s\n")
    )
    depths = [node.depth for node in relation.walk() if isinstance(node, Recursion)]
    assert depths == [1, 1]


def test_the_types_of_the_columns_are_asked_of_the_server() -> None:
    lookup = Integers()
    build_relation(parsed(REACHED.format(union="UNION", distinct="")), lookup)
    assert any("WITH RECURSIVE r(x)" in select and "AS u (c0)" in select for select in lookup.asked)
