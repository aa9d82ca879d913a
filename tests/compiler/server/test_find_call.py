"""The place where a query calls a function: found by asking the server, where the text does not
tell.
"""

from __future__ import annotations

import pytest
from sqlglot.expressions import Expr, Expression

from millstream.compiler.server import find_call
from millstream.compiler.server.plan_query import plan_query
from millstream.errors import Volatile
from millstream.postgres.connection import Connection

# A call that is not immutable follows the arrow; others of the same name or operator are immutable.
CALLS = (
    "SELECT age(ts, ts) AS a, -> age('5'::xid) AS b FROM t",
    "SELECT ts::time AS a, -> ts::time::timetz AS b FROM t",
    "SELECT id FROM t WHERE ts::time > '12:00' AND -> ts::time::timetz > '12:00+00'",
    "SELECT x, -> ts::time::timetz AS d, count(*) AS n FROM t GROUP BY x, ts::time::timetz",
)


@pytest.mark.parametrize("text", CALLS)
def test_the_call_that_is_not_immutable_is_found_among_others(
    planner: Connection, text: str
) -> None:
    with pytest.raises(Volatile) as raised:
        plan_query(planner, text.replace("-> ", ""))
    assert raised.value.position == text.index("-> ") + 1


def test_a_conversion_by_text_is_placed(planner: Connection) -> None:
    """The server's tree has only the types, and not the function that prints the value."""
    query = "SELECT x::text AS a, -> x::oid::regclass::text AS b FROM t"
    with pytest.raises(Volatile) as raised:
        plan_query(planner, query.replace("-> ", ""))
    assert raised.value.position == query.index("-> ") + 1


@pytest.mark.parametrize(("columns", "is_found"), [(30, True), (90, False)])
def test_a_call_is_looked_for_only_as_long_as_that_is_quick(
    planner: Connection, monkeypatch: pytest.MonkeyPatch, columns: int, is_found: bool
) -> None:
    """Every node of a query of 90 columns was tried, and each try reads the whole query: 10 s."""
    tried = list[object]()
    ask = find_call._calls_without

    def counted(
        conn: Connection, called: find_call.Called, tree: Expression, node: Expr, type_: str
    ) -> int:
        tried.append(node)
        return ask(conn, called, tree, node, type_)

    monkeypatch.setattr(find_call, "_calls_without", counted)
    with pytest.raises(Volatile) as raised:
        plan_query(
            planner,
            f"SELECT {', '.join(f'x + {n} AS x{n}' for n in range(columns))}, ts::time::timetz FROM t",
        )
    assert bool(tried) == (raised.value.position is not None) == is_found
