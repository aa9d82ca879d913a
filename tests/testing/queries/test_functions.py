"""Functions in FROM, and in the select list."""

from __future__ import annotations

from tests.testing.queries.conftest import makers, output_names

from millstream.testing.queries.functions import spread


def test_the_rows_have_the_columns_that_they_say() -> None:
    for m in makers():
        text, columns = spread(m)
        assert output_names(text) == [name for name, _ in columns]
        assert {"j", "h", "g"} <= {name for name, _ in columns}


def test_every_function_is_called_in_every_way() -> None:
    parts = set[str]()
    for m in makers():
        for _ in range(5):
            spread(m)
        parts |= m.parts
    assert {
        "unnest",
        "generate_series",
        "jsonb_array_elements",
        "string_to_table",
        "ROWS FROM",
    } <= parts
    assert {
        "function",
        "CROSS JOIN function",
        "LEFT JOIN function",
        "LEFT JOIN function ON",
    } <= parts
    assert {"set in the select list", "WITH ORDINALITY"} <= parts
