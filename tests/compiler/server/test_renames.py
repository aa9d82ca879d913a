"""A query whose relations and columns were renamed means what it meant: PostgreSQL's own view of it
is the oracle.
"""

from __future__ import annotations

import pytest

from millstream.catalog.definitions import query_names
from millstream.compiler.server import queries, renames
from millstream.errors import BadQuery
from millstream.postgres.connection import Connection

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, a int, b text, c int);
    CREATE TABLE u (id int PRIMARY KEY, a int);
    CREATE VIEW v AS SELECT id, a AS "A" FROM t;
    CREATE SCHEMA aside;
"""
QUERIES = {
    "columns": "SELECT id, a + c AS total FROM t WHERE b <> 'a' ORDER BY a LIMIT 3",
    "aliases": "SELECT x.a, y.a AS other FROM t AS x JOIN u AS y USING (id)",
    "same name": "SELECT t.a, u.a AS other, q.a AS third FROM t JOIN u ON t.a = u.a, (SELECT a FROM u) AS q",
    "by key": "SELECT id, a, b FROM t GROUP BY id",
    "correlated": "SELECT a FROM t WHERE EXISTS (SELECT FROM u WHERE u.a = t.a AND t.c > (SELECT max(a) FROM u))",
    "with": "WITH t AS (SELECT a AS id FROM u), w AS (SELECT a, c FROM public.t) SELECT w.a, t.id FROM w, t",
    "view": 'SELECT "A" + 1 AS next FROM v',
    "recursive": "WITH RECURSIVE r AS (SELECT id, a FROM t UNION SELECT u.id, r.a FROM r JOIN u ON u.a = r.id) TABLE r",
    "set": "SELECT a, b FROM t UNION ALL SELECT a, 'x' FROM u",
    "window": "SELECT a, sum(c) OVER w AS s FROM t WINDOW w AS (PARTITION BY a ORDER BY c)",
}
DDL = {
    "one column": "ALTER TABLE t RENAME a TO z",
    "the key": "ALTER TABLE t RENAME id TO key; ALTER TABLE u RENAME id TO code",
    "two change places": "ALTER TABLE t RENAME a TO z; ALTER TABLE t RENAME c TO a; ALTER TABLE t RENAME z TO c",
    "another gets the name": "ALTER TABLE t RENAME a TO z; ALTER TABLE t ADD a int",
    "table": 'ALTER TABLE t RENAME TO "T"; ALTER TABLE "T" RENAME b TO "select"; ALTER TABLE u RENAME TO was',
    "schema": "ALTER TABLE t SET SCHEMA aside; ALTER TABLE u RENAME a TO id_2",
    "all": "ALTER SCHEMA public RENAME TO private; ALTER TABLE private.t RENAME a TO z",
    "view": 'ALTER VIEW v RENAME COLUMN "A" TO a; ALTER VIEW v RENAME TO w',
}


@pytest.mark.parametrize("ddl", DDL.values(), ids=list(DDL))
def test_a_text_follows_renames_as_a_view_does(conn: Connection, ddl: str) -> None:
    conn.execute(TABLES)
    texts, names, views = dict[str, str](), dict[str, query_names.Names](), dict[str, int]()
    for what, query in QUERIES.items():
        texts[what] = queries.canonical(conn, query).text
        conn.execute(f'CREATE VIEW aside."{what}" AS {texts[what]}'.encode())
        views[what] = conn.execute(
            "SELECT %s::regclass::oid::int8", (f'aside."{what}"',)
        ).fetchall()[0][0]
        names[what] = query_names.of_view(conn, views[what])
        assert renames.find(conn, names[what]) == []
    conn.execute(ddl.encode())
    wrong = {}
    for what, text in texts.items():
        renamed = renames.find(conn, names[what])
        followed = renames.follow(conn, text, renamed) if renamed else text
        # Aliases are the names that tables had; the trees are the same but for those.
        found, expected = queries.reread(conn, followed), queries.view(conn, views[what])
        if (
            _meaning(conn, followed) != _meaning(conn, expected.text)
            or found.operators != expected.operators
        ):
            wrong[what] = (followed, expected.text)
    assert wrong == {}


def _meaning(conn: Connection, text: str) -> list[tuple[object, ...]]:
    """The columns that a query reads, and those that it returns."""
    conn.execute("CREATE TEMPORARY VIEW pg_temp.__meaning AS " + text)
    try:
        used = (
            "SELECT d.refobjid, d.refobjsubid FROM pg_depend AS d JOIN pg_rewrite AS w ON w.oid = d.objid "
            "WHERE w.ev_class = 'pg_temp.__meaning'::regclass AND d.refclassid = 'pg_class'::regclass "
            "AND d.refobjid <> w.ev_class ORDER BY 1, 2"
        )
        columns = (
            "SELECT attname, atttypid, atttypmod FROM pg_attribute "
            "WHERE attrelid = 'pg_temp.__meaning'::regclass ORDER BY attnum"
        )
        return [*conn.execute(used.encode()).fetchall(), *conn.execute(columns.encode()).fetchall()]
    finally:
        conn.execute("DROP VIEW pg_temp.__meaning")


def test_a_column_that_was_dropped_is_missed_although_others_were_renamed(conn: Connection) -> None:
    conn.execute(TABLES)
    text = queries.canonical(conn, QUERIES["columns"]).text
    with queries.rolled_back(conn):
        names = query_names.of_view(conn, queries.temporary_view(conn, text))
    conn.execute("DROP VIEW v; ALTER TABLE t RENAME a TO z; ALTER TABLE t DROP COLUMN c")
    with pytest.raises(BadQuery, match=r'column ("c"|t\.c) does not exist'):
        renames.follow(conn, text, renames.find(conn, names))


def test_a_table_whose_name_another_one_has_now_is_not_followed(conn: Connection) -> None:
    conn.execute(TABLES)
    text = queries.canonical(conn, QUERIES["columns"]).text
    with queries.rolled_back(conn):
        names = query_names.of_view(conn, queries.temporary_view(conn, text))
    conn.execute("ALTER TABLE t RENAME TO t_old; CREATE TABLE t (LIKE t_old)")
    assert renames.find(conn, names) == []
