"""LIMIT, OFFSET and DISTINCT ON in the syntax tree."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.compiler.clauses.limit import distinct_on_expressions, limit_text, order_terms
from millstream.errors import Unsupported


def select(text: str) -> exp.Select:
    node = parsed(text)
    assert isinstance(node, exp.Select)
    return node


def test_an_order_counts_only_where_it_decides_which_rows_there_are() -> None:
    assert order_terms(select("SELECT a FROM t ORDER BY b")) == []
    assert [
        term.sql() for term in order_terms(select("SELECT a FROM t ORDER BY b, c LIMIT 1"))
    ] == ["b", "c"]
    assert [
        term.sql() for term in order_terms(select("SELECT DISTINCT ON (a) a FROM t ORDER BY a, b"))
    ] == ["a", "b"]


def test_distinct_on_is_not_distinct() -> None:
    assert [
        key.sql() for key in distinct_on_expressions(select("SELECT DISTINCT ON (a, b) c FROM t"))
    ] == ["a", "b"]
    assert distinct_on_expressions(select("SELECT DISTINCT c FROM t")) == []


def test_limit_and_offset_are_printed_together() -> None:
    assert limit_text(parsed("SELECT a FROM t LIMIT 3 OFFSET 2")) == "LIMIT 3 OFFSET 2"
    assert limit_text(parsed("SELECT a FROM t")) == ""


def test_a_limit_that_may_change_is_refused() -> None:
    with pytest.raises(Unsupported, match="LIMIT or OFFSET that is a subquery"):
        limit_text(parsed("SELECT a FROM t LIMIT (SELECT max(n) FROM u)"))
