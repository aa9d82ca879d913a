"""The random queries write what `docs/explain/random-queries.md` says, and nothing of it goes
missing unnoticed.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from millstream.compiler.server import node_tree
from millstream.postgres.connection import Connection
from millstream.testing.queries import Query, RandomQueries
from millstream.testing.queries.productions import PRODUCTIONS, productions_of, seen
from millstream.testing.randomness import random_tables

PAGE = Path(__file__).parents[3] / "docs" / "explain" / "random-queries.md"
# So many queries have every production that is ever written, but for a few in a thousand seeds:
# this seed has all.
SEED, QUERIES = 5, 700


def stated() -> dict[str, tuple[str, str]]:
    """Of each production on the page: is it written, and why not."""
    found = re.findall(r"^\| (.+?) \| (yes|no) \| (.*?) ?\|$", PAGE.read_text(), re.MULTILINE)
    return {name: (written, why) for name, written, why in found}


def analysed(conn: Connection, query: Query, name: str) -> frozenset[str]:
    """The productions of a query, after PostgreSQL has accepted it."""
    for statement in (*query.setup, f"CREATE VIEW {name} AS {query.sql}"):
        conn.execute(statement.encode())
    sql = "SELECT ev_action::text FROM pg_rewrite WHERE ev_class = %s::regclass"
    ((tree,),) = conn.execute(sql, (name,)).fetchall()
    text = " ".join([*query.setup, query.sql])
    return productions_of(seen(text, list(node_tree.walk(node_tree.parse(tree)))))


def test_the_page_lists_every_production_and_has_a_reason_for_each_that_is_not_written() -> None:
    page = stated()
    assert list(page) == list(PRODUCTIONS)
    assert [name for name, (written, why) in page.items() if (written == "no") != bool(why)] == []


@pytest.mark.parametrize("cased", [True, False])
def test_the_random_queries_are_accepted_by_postgres(conn: Connection, cased: bool) -> None:
    """And each production that the page says is written is, the others are not."""
    dice = random.Random(f"{SEED} {cased}")
    tables = random_tables(dice, cased=cased)
    for statement in (statement for table in tables for statement in table.ddl()):
        conn.execute(statement.encode())
    queries = RandomQueries(tables, dice)
    found = set[str]()
    for number in range(QUERIES):
        found |= analysed(conn, queries.next(), f"v{number}")
    assert found == {name for name, (written, _) in stated().items() if written == "yes"}
