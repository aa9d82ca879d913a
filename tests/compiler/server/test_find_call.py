"""The place where a query calls a function: found by asking the server, where the text does not
tell.
"""

from __future__ import annotations

import pytest

from millstream.compiler.server.plan_query import plan_query
from millstream.errors import Volatile
from millstream.postgres.connection import Connection

# A call that is not immutable follows the arrow; others of the same name or operator are immutable.
CALLS = (
    "SELECT date_trunc('day', ts) AS a, -> date_trunc('day', tz) AS b FROM t",
    "SELECT x + 1 AS a, ts + iv AS b, -> tz + iv AS c FROM t",
    "SELECT ts::date AS a, -> tz::date AS b FROM t",
    "SELECT t || 'a' AS a, -> t || x AS b FROM t",
    "SELECT id FROM t WHERE ts > d AND -> tz > d",
    "SELECT x, -> date_trunc('day', tz) AS d, count(*) AS n FROM t GROUP BY x, date_trunc('day', tz)",
)


@pytest.mark.parametrize("text", CALLS)
def test_the_call_that_is_not_immutable_is_found_among_others(
    planner: Connection, text: str
) -> None:
    with pytest.raises(Volatile) as raised:
        plan_query(planner, text.replace("-> ", ""))
    assert raised.value.position == text.index("-> ") + 1


def test_a_conversion_by_text_is_not_placed(planner: Connection) -> None:
    """The server's tree does not name the function that prints the value."""
    with pytest.raises(Volatile) as raised:
        plan_query(planner, "SELECT r::text AS a FROM t")
    assert raised.value.position is None
