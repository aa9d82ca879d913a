"""Stable functions over arguments of plain types."""

from __future__ import annotations

import pytest

from millstream.compiler.server.node_tree import parse
from millstream.compiler.server.volatility import session_dependent

CONCAT, TO_JSON = 3058, 3787
NAMES = {CONCAT: "concat", TO_JSON: "to_jsonb"}
INT4, TIMESTAMPTZ, DATE = 23, 1184, 1082


@pytest.mark.parametrize(
    ("function", "type_", "depends"),
    [
        (CONCAT, INT4, False),
        (CONCAT, TIMESTAMPTZ, True),
        (CONCAT, DATE, True),
        (TO_JSON, DATE, False),
        (TO_JSON, TIMESTAMPTZ, True),
        (99, TIMESTAMPTZ, False),
    ],
)
def test_the_text_of_some_types_depends_on_the_session(
    function: int, type_: int, depends: bool
) -> None:
    tree = parse(f"({{FUNCEXPR :funcid {function} :args ({{CONST :consttype {type_}}})}})")
    assert session_dependent(tree, NAMES) == ({function} if depends else set())
