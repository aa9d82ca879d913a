"""Items of FROM that are queries: their text has the columns that they say."""

from __future__ import annotations

import pytest
from tests.testing.queries.conftest import makers, output_names

from millstream.testing.queries.derived import BODIES, constant_item, item, query_item

# The last SELECT of a recursive query may show columns of SEARCH and CYCLE under other names.
LISTED = [name for name in BODIES if name != "recursive"]


@pytest.mark.parametrize("generate", [item, query_item, constant_item])
def test_every_item_has_the_columns_to_join_by(generate: object) -> None:
    assert callable(generate)
    for m in makers():
        names = [column.name for column in generate(m).columns]
        assert {"j", "h", "g"} <= set(names)
        assert ("cid" in names) == m.cased
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", LISTED)
def test_a_body_has_the_columns_that_it_says(name: str) -> None:
    for m in makers():
        text, columns = BODIES[name](m)
        assert output_names(text) == [column for column, _ in columns]


def test_without_depth_an_item_is_a_table() -> None:
    assert all(item(m).table is not None for m in makers(depth=0))


def test_a_constant_item_has_a_constant_that_is_not_null() -> None:
    for m in makers():
        assert "k0" in [column.name for column in constant_item(m).columns]
        assert "constant" in m.parts
