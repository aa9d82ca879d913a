"""Finding subqueries in expressions."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.algebra.expr import Expr, Ref
from millstream.compiler.decorrelate.find import (
    has_plain_correlation,
    has_subquery,
    outermost_subqueries,
)
from millstream.compiler.decorrelate.scope import Scope


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a + (SELECT max(x) FROM t)", exp.Subquery),
        ("NOT EXISTS (SELECT FROM t)", exp.Exists),
        ("a IN (SELECT x FROM t)", exp.In),
        ("a > ALL (SELECT x FROM t)", exp.GT),
        ("a = ANY (SELECT x FROM t UNION SELECT y FROM u)", exp.EQ),
    ],
)
def test_a_subquery_is_found_with_its_operator(text: str, kind: type[exp.Expression]) -> None:
    (subquery,) = outermost_subqueries(exp.Paren(this=Expr(text).node))
    assert isinstance(subquery, kind)


def test_a_subquery_inside_another_is_not_found() -> None:
    text = "(SELECT max(x) FROM t WHERE EXISTS (SELECT FROM u)) > 0"
    assert len(outermost_subqueries(exp.Paren(this=Expr(text).node))) == 1


@pytest.mark.parametrize("text", ["a IN (1, 2)", "a = ANY (ARRAY[1, 2])", "a + b"])
def test_lists_and_arrays_are_no_subqueries(text: str) -> None:
    assert not has_subquery(Expr(text).node)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("SELECT o.x FROM o WHERE o.y > c.id", True),
        ("SELECT o.x + c.id FROM o", True),
        ("SELECT o.x FROM o JOIN p ON p.y = c.id", False),
        ("SELECT o.x FROM o WHERE o.y IN (SELECT p.x FROM p WHERE p.y = c.id)", False),
        ("SELECT (SELECT max(p.x) FROM p WHERE p.y = c.id) FROM o", False),
    ],
)
def test_a_plain_correlation_is_in_where_or_the_select_list(text: str, plain: bool) -> None:
    scope = Scope().with_columns("c", ["id"], [Ref("c", "id")])
    select = parsed(text)
    assert isinstance(select, exp.Select)
    assert has_plain_correlation(select, scope) is plain
