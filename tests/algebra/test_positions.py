"""Places of syntax nodes in the text that the user wrote."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, all_of, conjuncts
from millstream.algebra.positions import parse_with_positions, position_of, set_positions

# A kind of node, and a text with an arrow where the first such node begins.
BEGINNINGS: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Add, "SELECT -> a.x + 1 * 2 FROM a"),
    (exp.Mul, "SELECT a.x + -> 1 * 2 FROM a"),
    (exp.Not, "SELECT a FROM t WHERE -> NOT b"),
    (exp.Case, "SELECT a, -> CASE WHEN b THEN 1 END FROM t"),
    (exp.Cast, "SELECT a, -> b::text FROM t"),
    (exp.Window, "SELECT -> sum(a) OVER (PARTITION BY b) FROM t"),
    (exp.Exists, "SELECT a FROM t WHERE -> EXISTS (SELECT 1)"),
    (exp.Dot, "SELECT -> pg_catalog.lower(a) FROM t"),
    (exp.Lock, "SELECT a FROM t -> FOR UPDATE"),
    (exp.TableSample, "SELECT a FROM t -> TABLESAMPLE SYSTEM (10)"),
    (exp.Limit, "SELECT a FROM t -> LIMIT 3"),
    (exp.CTE, "WITH -> r AS (SELECT 1) SELECT * FROM r"),
    (exp.Like, "SELECT 'a LIKE b' -- a LIKE b\nFROM t WHERE -> a LIKE b"),
)


@pytest.mark.parametrize(("kind", "text"), BEGINNINGS, ids=[text for _, text in BEGINNINGS])
def test_a_node_begins_at_its_first_token(kind: type[exp.Expr], text: str) -> None:
    node = parse_with_positions(text.replace("-> ", "")).find(kind)
    assert node is not None
    assert position_of(node) == text.index("-> ") + 1


def test_all_of_a_view_stands_where_it_is_read() -> None:
    tree = set_positions(parse_with_positions("SELECT a FROM t"), 30)
    assert {position_of(node) for node in tree.walk()} == {30}


def test_an_expression_and_its_parts_keep_their_places() -> None:
    where = parse_with_positions('SELECT 1 FROM t WHERE "t"."a" LIKE "t"."b" AND "t"."c"').find(
        exp.Where
    )
    assert where is not None
    whole = Expr.of(where.this)
    assert [part.position for part in conjuncts(whole)] == [23, 48]
    moved = [part.substitute({Ref("t", "a"): Expr('lower("u"."x")')}) for part in conjuncts(whole)]
    assert [part.position for part in conjuncts(all_of(moved))] == [23, 48]
    assert [part.position for part in conjuncts(Expr.parse(f"({moved[0]}) AND true", *moved))] == [
        23,
        0,
    ]


def test_equal_expressions_are_equal_wherever_they_stand() -> None:
    column = Expr.parse('"t"."a"')
    assert column.at_position(7) == column
    assert hash(column.at_position(7)) == hash(column)
    assert (column.position, column.at_position(7).position) == (0, 7)
