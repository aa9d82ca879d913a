"""Constants, and expressions that have a value where a term is NULL."""

from __future__ import annotations

from sqlglot import exp
from tests.testing.queries.conftest import expression, makers

from millstream.testing.queries.hiding import CONSTANT_KINDS, constant, hidden, hiding
from millstream.testing.queries.terms import free
from millstream.testing.randomness import COMPARED


def test_a_constant_has_no_column_and_is_null_only_by_chance() -> None:
    for m in makers():
        for kind in CONSTANT_KINDS:
            text = constant(m, kind, null=0).sql
            assert not text.startswith("NULL")
            assert expression(text).find(exp.Column) is None
            assert constant(m, kind, null=1).sql.startswith("NULL::")


def test_what_hides_a_null_is_an_expression_over_the_term() -> None:
    for m in makers():
        for term in free(m.table().columns):
            if term.kind in COMPARED:
                found = hidden(m, term)
                assert term.sql in found.sql
                assert found.sql != term.sql


def test_columns_are_numbered_from_the_first() -> None:
    for m in makers():
        names = list(hiding(m, m.table().columns, first=3))
        assert names == [f"k{number}" for number in range(3, 3 + len(names))]
        assert len(names) <= 2
