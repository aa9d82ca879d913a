"""A refusal marks the construct that it is about: each query of the files has its place marked by an arrow.

    SELECT id FROM orders --> FOR UPDATE

A query without an arrow is refused for what has no place of its own (it has no columns, no table), or for what cannot
be traced to the text yet (a recursion's term, SEARCH and CYCLE): then no place is shown.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.capabilities import REFUSED
from tests.test_hints import REFUSED as HINTS
from tests.test_hints import TABLES

from millstream.compiler.server.plan_query import plan_query
from millstream.compiler.server.position import excerpt
from millstream.errors import QueryError
from millstream.postgres.connection import Connection

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"
ARROW = "--> "


def marked(name: str) -> list[str]:
    return (HERE / f"{name}.txt").read_text().rstrip("\n").split("\n\n")


def unmarked(query: str) -> str:
    return query.replace(ARROW, "")


@pytest.fixture(scope="module")
def hinted(planner: Connection) -> Connection:
    """A database with the tables over which the hints are tried."""
    planner.execute(f"CREATE SCHEMA hints; SET search_path = hints; {TABLES}".encode())
    return planner


def wrongly_marked(conn: Connection, queries: list[str]) -> list[str]:
    """Return the queries of which the refusal marks another place than the arrow."""
    return [query for query in queries if marked_by_refusal(conn, unmarked(query)) != query]


def marked_by_refusal(conn: Connection, query: str) -> str:
    with pytest.raises(QueryError) as raised:
        plan_query(conn, query)
    position = raised.value.facts["position"]
    return query if position is None else query[: position - 1] + ARROW + query[position - 1 :]


def test_a_refusal_marks_the_construct(shop: Connection) -> None:
    assert wrongly_marked(shop, marked("refused_shop")) == []


def test_a_refusal_with_a_hint_marks_the_construct(hinted: Connection) -> None:
    assert wrongly_marked(hinted, marked("refused_hints")) == []


def test_every_refused_query_of_the_suite_has_its_place_in_a_file() -> None:
    shop, hints = ({unmarked(query) for query in marked(name)} for name in ("refused_shop", "refused_hints"))
    golden = (path.read_text().split("\n----\n") for path in GOLDEN.glob("*.txt"))
    refused = {query.strip() for query, plan in golden if plan.startswith("Refused")}
    assert refused | {row.example for row in REFUSED} <= shop
    assert {case.query for case in HINTS} <= hints


def test_what_is_refused_in_a_view_is_marked_where_the_view_is_read(shop: Connection) -> None:
    with shop.transaction(force_rollback=True):
        shop.execute("CREATE VIEW lucky AS SELECT id FROM orders WHERE random() < 0.5")
        shop.execute("CREATE VIEW matching AS SELECT o.id FROM orders o LEFT JOIN customers c ON o.note LIKE c.name")
        for view in ("lucky", "matching"):
            query = f"SELECT c.name FROM customers AS c JOIN {ARROW}{view} AS o ON o.id = c.id"
            assert marked_by_refusal(shop, unmarked(query)) == query


def test_an_excerpt_shows_the_line_of_the_place() -> None:
    assert excerpt("SELECT a\nFROM t FOR UPDATE", 17) == "Line 2: FROM t  --> FOR UPDATE"
    assert excerpt("SELECT a", None) == ""


def test_a_refusal_of_the_text_that_is_recorded_marks_that_text(shop: Connection) -> None:
    query = "SELECT orders.id FROM public.orders WHERE (random() < 0.5)"
    with pytest.raises(QueryError) as raised:
        plan_query(shop, query, qualified=True)
    assert query[raised.value.position - 1 :].startswith("random()")
