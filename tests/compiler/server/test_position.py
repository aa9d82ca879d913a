"""A refusal marks the construct that it is about: each query of the files has its place marked by
an arrow.

    SELECT id FROM orders --> FOR UPDATE

A query without an arrow is refused by PostgreSQL itself without a position, or for something that
has no place (it has no columns, no table), or cannot be parsed by Millstream: then no place is
shown.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.capabilities import REFUSED
from sqlglot import exp
from tests.test_hints import REFUSED as HINTS
from tests.test_hints import TABLES

from millstream.algebra.positions import position_of
from millstream.compiler.server import position
from millstream.compiler.server.plan_query import plan_query
from millstream.compiler.server.position import excerpt, parse_canonical
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
    place = raised.value.facts["position"]
    return query if place is None else query[: place - 1] + ARROW + query[place - 1 :]


def test_a_refusal_marks_the_construct(shop: Connection) -> None:
    assert wrongly_marked(shop, marked("refused_shop")) == []


def test_a_refusal_with_a_hint_marks_the_construct(hinted: Connection) -> None:
    assert wrongly_marked(hinted, marked("refused_hints")) == []


def test_every_refused_query_of_the_suite_has_its_place_in_a_file() -> None:
    shop, hints = (
        {unmarked(query) for query in marked(name)} for name in ("refused_shop", "refused_hints")
    )
    golden = (path.read_text().split("\n----\n") for path in GOLDEN.glob("*.txt"))
    refused = {query.strip() for query, plan in golden if plan.startswith("Refused")}
    assert refused | {row.example for row in REFUSED} <= shop
    assert {case.query for case in HINTS} <= hints


def test_what_is_refused_in_a_view_is_marked_where_the_view_is_read(shop: Connection) -> None:
    with shop.transaction(force_rollback=True):
        shop.execute("CREATE VIEW lucky AS SELECT id FROM orders WHERE random() < 0.5")
        shop.execute(
            "CREATE VIEW matching AS SELECT o.id FROM orders o CROSS JOIN customers c "
            "LEFT JOIN regions r ON o.note || c.name LIKE r.name"
        )
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


# A query, and the server's text of it; each condition LIKE of the text stands for what follows the
# arrow.
READ_AS = (
    (
        "SELECT o.id FROM t AS o WHERE EXISTS (SELECT FROM t AS o JOIN u ON --> o.a LIKE u.b)",
        "SELECT o.id FROM t o WHERE (EXISTS ( SELECT FROM (t o_1 JOIN u ON ((o_1.a ~~ u.b)))))",
    ),
    ("SELECT *, --> a LIKE b FROM t", 'SELECT t.a, t.b, (t.a ~~ t.b) AS "?column?" FROM t'),
    (
        "SELECT 1 FROM t, u JOIN w ON --> u.a LIKE w.a",
        "SELECT 1 FROM t, (u JOIN w ON ((u.a ~~ w.a)))",
    ),
    (
        "SELECT 1 FROM t WHERE a IN (1, 2) AND --> b LIKE c",
        "SELECT 1 FROM t WHERE ((a = ANY (ARRAY[1, 2])) AND (b ~~ c))",
    ),
)


@pytest.mark.parametrize(("query", "text"), READ_AS, ids=[query for query, _ in READ_AS])
def test_a_node_of_the_servers_text_has_the_position_of_what_the_user_wrote(
    query: str, text: str
) -> None:
    tree = parse_canonical(text, unmarked(query))
    like = tree.find(exp.Like) if tree else None
    assert like is not None
    assert position_of(like) == query.index(ARROW) + 1


def test_where_the_trees_do_not_agree_a_node_has_no_position() -> None:
    tree = parse_canonical(
        "SELECT 1 FROM x JOIN y ON x.a ~~ y.a", "SELECT 1 FROM t JOIN u ON t.a LIKE u.a"
    )
    like = tree.find(exp.Like) if tree else None
    assert like is not None
    assert position_of(like) == 0


def test_a_query_that_only_the_server_can_read_has_no_tree() -> None:
    assert parse_canonical("SELECT 1 FROM", "SELECT 1") is None


def test_a_refusal_is_not_hidden_by_an_error_while_its_place_is_looked_for(
    shop: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(position, "parse_canonical", broken)
    with pytest.raises(QueryError, match="FOR UPDATE") as raised:
        plan_query(shop, "SELECT id FROM orders FOR UPDATE")
    assert raised.value.position is None
