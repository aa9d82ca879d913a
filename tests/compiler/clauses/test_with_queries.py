"""The text of a query together with the WITH queries that it may name."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.algebra.relation import Relation
from millstream.compiler.clauses.clock import replace_clock_calls
from millstream.compiler.clauses.with_queries import Cte, is_materialized, text_with


def cte_of(text: str, *, recursive: bool = False) -> Cte:
    """Return the first WITH query of a text; it is never built."""

    def unbuilt() -> Relation:
        raise AssertionError("only the text is needed")

    node = parsed(text).find(exp.CTE)
    assert node is not None
    return Cte(node, unbuilt, recursive)


X = cte_of("WITH x AS (SELECT t.a FROM t) SELECT x.a FROM x")
R = cte_of(
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT n + 1 FROM r) SELECT n FROM r", recursive=True
)


def test_a_query_without_with_queries_is_its_own_text() -> None:
    query = parsed("SELECT t.a FROM t")
    assert text_with(query, {}) == "SELECT t.a FROM t"


def test_with_queries_come_first_and_the_query_itself_is_not_changed() -> None:
    query = parsed("SELECT x.a FROM x")
    assert text_with(query, {"x": X}) == "WITH x AS (SELECT t.a FROM t) SELECT x.a FROM x"
    assert query.args.get("with_") is None


def test_one_recursive_query_makes_the_whole_clause_recursive() -> None:
    assert text_with(parsed("SELECT x.a FROM x"), {"x": X, "r": R}).startswith(
        "WITH RECURSIVE x AS"
    )
    assert not text_with(parsed("SELECT x.a FROM x"), {"x": X}).startswith("WITH RECURSIVE")


def test_the_clock_is_a_call_again_that_the_server_can_read() -> None:
    query = replace_clock_calls(parsed("SELECT now() AS t FROM x"))
    assert "__ms_clock" in query.sql()
    assert "__ms_clock" not in text_with(query, {"x": X})
    assert "NOW()" in text_with(query, {"x": X}).upper()


@pytest.mark.parametrize(
    ("query", "whole"),
    [
        ("WITH x AS (SELECT 1 AS a) SELECT x.a FROM x", False),
        ("WITH x AS MATERIALIZED (SELECT 1 AS a) SELECT x.a FROM x", True),
        ("WITH x AS (SELECT 1 AS a) SELECT x.a FROM x, x AS y", True),
        ("WITH x AS NOT MATERIALIZED (SELECT 1 AS a) SELECT x.a FROM x, x AS y", False),
        ("WITH x AS (SELECT 1 AS a) SELECT x.a FROM x, s.x AS y", False),
    ],
)
def test_a_with_query_is_materialized_if_it_says_so_or_is_used_twice(
    query: str, whole: bool
) -> None:
    tree = parsed(query)
    assert is_materialized(tree.args["with_"].expressions[0], tree) == whole
