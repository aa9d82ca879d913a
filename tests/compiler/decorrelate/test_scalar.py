"""Scalar subqueries: which form each takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.algebra.dialect import parsed
from millstream.algebra.relation import Relation
from millstream.compiler.decorrelate.scalar import _is_limited_to_one

Build = Callable[[str], Relation]


def test_an_aggregate_is_grouped_by_its_correlation_and_left_joined(build: Build) -> None:
    tree = str(build("SELECT t.id, ( SELECT max(u.b) AS max FROM u WHERE (u.a = t.a)) AS m FROM t"))
    assert 'Aggregate  scalar: "u"."a" AS k0; max("u"."b") AS m0' in tree
    assert "Join  left" in tree


def test_a_count_is_zero_where_no_group_matches(build: Build) -> None:
    tree = str(
        build("SELECT t.id, ( SELECT count(*) AS count FROM u WHERE (u.a = t.a)) AS n FROM t")
    )
    assert 'COALESCE("scalar"."m0", 0)' in tree


def test_an_uncorrelated_aggregate_always_has_its_row(build: Build) -> None:
    tree = str(build("SELECT t.id, ( SELECT count(*) AS count FROM u) AS n FROM t"))
    assert "COALESCE" not in tree
    assert "Join  (all pairs)" in tree


def test_a_subquery_by_a_unique_key_needs_no_count(build: Build) -> None:
    tree = str(build("SELECT u.a, ( SELECT t.b FROM t WHERE (t.id = u.a)) AS b FROM u"))
    assert "Window" not in tree


def test_a_subquery_that_may_have_several_rows_counts_them(build: Build) -> None:
    tree = str(build("SELECT t.id, ( SELECT u.b FROM u WHERE (u.a = t.a)) AS b FROM t"))
    assert "COUNT(*) OVER" in tree
    assert "generate_series" in tree


@pytest.mark.parametrize(
    ("clause", "limited"),
    [
        ("LIMIT 1", True),
        ("FETCH FIRST 1 ROWS ONLY", True),
        ("LIMIT 2", False),
        ("FETCH FIRST 1 ROWS WITH TIES", False),
        ("", False),
    ],
)
def test_limit_1_has_one_row_unless_with_ties(clause: str, limited: bool) -> None:
    assert _is_limited_to_one(parsed(f"SELECT x FROM t ORDER BY x {clause}")) is limited
