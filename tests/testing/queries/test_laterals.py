"""LATERAL items come last, and have the columns that all items have."""

from __future__ import annotations

import pytest
from sqlglot import exp
from tests.testing.queries.conftest import makers, output_names, source_of

from millstream.algebra.dialect import parsed
from millstream.testing.queries.laterals import BODIES, with_lateral
from millstream.testing.queries.subqueries import around


def test_the_last_item_is_lateral_and_has_the_columns_to_join_by() -> None:
    for m in makers():
        found = with_lateral(m, source_of(m))
        assert len(found.items) == 3
        names = [column.name for column in found.items[-1].columns]
        assert {"j", "h", "g"} <= set(names)
        assert ("cid" in names) == m.cased
        assert len(list(parsed(f"SELECT {found.text()}").find_all(exp.Lateral))) == 1


@pytest.mark.parametrize("name", BODIES)
def test_a_body_has_the_columns_that_it_says(name: str) -> None:
    for m in makers():
        source = source_of(m)
        text, columns = BODIES[name](m, around(source), source.case)
        assert output_names(text) == [column for column, _ in columns]
