"""Subqueries in expressions: they select, and name what they may name."""

from __future__ import annotations

from sqlglot import exp
from tests.testing.queries.conftest import expression, makers, source_of

from millstream.testing.queries.subqueries import around, asking, condition, gathered, scalar, tied
from millstream.testing.randomness import KINDS


def test_a_condition_has_a_subquery() -> None:
    for m in makers():
        host = around(source_of(m))
        for text in (
            condition(m, host),
            asking(m, host),
            scalar(m, host).sql,
            gathered(m, host).sql,
        ):
            assert expression(text).find(exp.Select) is not None, text


def test_a_scalar_subquery_has_one_column_of_a_known_kind() -> None:
    for m in makers():
        term = scalar(m, around(source_of(m)))
        select = expression(term.sql).find(exp.Select)
        assert select is not None
        assert len(select.expressions) == 1
        assert term.kind in KINDS


def test_a_correlated_subquery_names_its_own_item_and_the_rows_around_it() -> None:
    for m in makers():
        source = source_of(m)
        own = m.table()
        tree = expression(f"EXISTS (SELECT {tied(m, around(source), own, untied=0)})")
        inner = {table.alias_or_name for table in tree.find_all(exp.Table, exp.Subquery)}
        named = {column.table for column in tree.find_all(exp.Column)}
        assert own.alias in named
        assert named <= inner | {item.alias for item in source.items}
