"""DISTINCT, UNION, INTERSECT and EXCEPT."""

from __future__ import annotations

from itertools import count

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.algebra.relation import Aggregate, Filter, Project, Scan, UnionAll
from millstream.compiler.clauses.set_operations import (
    combine_rows,
    distinct_rows,
    flatten_chain,
    types_of_each,
)
from millstream.testing.planning_server import pg_type, table

NUMBERS = count()
INT4, TEXT = (pg_type("int4"),), (pg_type("text"),)


def fresh(wanted: str) -> str:
    return f"{wanted}{next(NUMBERS)}"


def chain(text: str) -> list[exp.SetOperation]:
    query = parsed(text)
    assert isinstance(query, exp.SetOperation)
    return flatten_chain(query)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3", 2),
        ("SELECT 1 UNION ALL SELECT 2 UNION SELECT 3", 2),
        ("SELECT 1 UNION SELECT 2 UNION ALL SELECT 3", 1),
        ("SELECT 1 EXCEPT SELECT 2 EXCEPT SELECT 3", 1),
    ],
)
def test_a_chain_is_flattened_unless_duplicates_would_differ(text: str, length: int) -> None:
    assert len(chain(text)) == length


def test_the_server_is_asked_about_a_part_and_the_whole_only_if_its_types_differ() -> None:
    operations = chain("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 'a'")
    types = {id(operations[0]): INT4, id(operations[1].expression): TEXT, id(operations[1]): TEXT}
    assert types_of_each(operations, lambda query: types[id(query)]) == [INT4, TEXT]


def test_distinct_rows_are_the_groups_under_the_same_names() -> None:
    rows = distinct_rows(Scan(table("t", "a int4, b int4"), "t"), fresh)
    assert isinstance(rows, Project)
    assert isinstance(rows.input, Aggregate)
    assert [ref.column for ref in rows.columns] == ["a", "b"]


def test_union_all_keeps_duplicates_and_except_counts_sides() -> None:
    parts = [Scan(table("t", "a int4"), "t"), Scan(table("u", "a int4"), "u")]
    (union,) = chain("SELECT 1 UNION ALL SELECT 2")
    assert isinstance(combine_rows(union, list(parts), ("a",), [INT4], fresh), UnionAll)
    (difference,) = chain("SELECT 1 EXCEPT SELECT 2")
    rows = combine_rows(difference, list(parts), ("a",), [INT4], fresh)
    assert isinstance(rows, Project)
    assert isinstance(rows.input, Filter)
    assert rows.input.predicate.sql.endswith("= 0")
