"""Every kind of node that the server's printer of views (ruleutils.c) knows is read and printed as it was.

The grammar is larger than that of operators, types and functions, which `test_tokens.py` asks the
server for. So the kinds are listed: `grammar_expressions.txt` in the order of its get_rule_expr,
`grammar_queries.txt` for the items of FROM and the clauses of queries. A server takes those that
its version has.
"""

from __future__ import annotations

from pathlib import Path

from tests.algebra.test_tokens import AS_PRINTED, as_printed, reprinted

from millstream.compiler.server.viewdef import comparable_text, readable_text
from millstream.postgres.connection import Connection

TABLES = """
    CREATE TYPE pair AS (a int, b text);
    CREATE TABLE t (
        id int PRIMARY KEY, x int, s smallint, n numeric, m numeric(9,2), f float8, t text, v varchar(9), c char(3),
        ok boolean, d date, ts timestamp, tz timestamptz, iv interval, j jsonb, js json, xm xml, arr int[],
        tarr text[], b bytea, p pair, parr pair[], tm time, ttz timetz, bi bit(3)
    );
    CREATE TABLE u (id int PRIMARY KEY, x int, t text);
    CREATE TABLE parent (id int PRIMARY KEY, x int);
"""


def lines(name: str) -> list[str]:
    text = (Path(__file__).parent / f"{name}.txt").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_every_kind_of_node_is_printed_as_it_was_read(conn: Connection) -> None:
    conn.execute(f"{TABLES}; {AS_PRINTED}".encode())
    statements = [f"SELECT {line} AS v FROM t" for line in lines("grammar_expressions")]
    statements += lines("grammar_queries")
    before = as_printed(conn, statements)
    known = {one: readable_text(text.rstrip(";")) for one, text in before.items() if text}
    again = {statement: reprinted(text) for statement, text in known.items()}
    after = as_printed(conn, [*again.values(), *known.values()])
    wrong = {
        statement: again[statement]
        for statement, text in known.items()
        if _meaning(after[again[statement]]) not in (_meaning(text), _meaning(after[text]))
    }
    assert wrong == {}
    assert len(known) > (330 if conn.info.server_version >= 180000 else 270)


def _meaning(text: str | None) -> str | None:
    return None if text is None else comparable_text(text.rstrip(";"))
