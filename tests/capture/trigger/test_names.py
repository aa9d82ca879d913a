"""Names of any kind, and tables of many columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from millstream.capture.trigger import triggers
from millstream.catalog import sources
from millstream.postgres.connection import Connection

if TYPE_CHECKING:
    from tests.capture.conftest import Watch

NAMES = {
    "quoted": 'my "odd" table',
    "mixed case": "OrderLines",
    "not ASCII": "Bestellungen_für_Zürich_注文",
    "a keyword": "select",
    "signs": "a.b$c%d'e\\f{g}",
    "long": "x" * 63,
    "a transition table's": "new_rows",
}

# Names that mean something inside the capture function.
COLUMNS = [
    "new", "old", "r", "n", "tg_op", "intact", "new_rows", "xid", "action", "id", "c1", "c2", "pair", "image",
    "p", "i", "went", "came", "Größe", 'quo"ted', "per%cent", "b{r}ace", "sl\\ash", "ctid2", "$1",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
@pytest.mark.parametrize("schema", ["public", 'Sch "ema'])
def test_a_table_of_any_name_is_captured(
    conn: Connection, watch: Watch, schema: str, name: str
) -> None:
    table = sql.Identifier(schema, name)
    conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
    conn.execute(sql.SQL("CREATE TABLE {} ({} int, v text)").format(table, sql.Identifier(name)))
    watched = watch(table.as_string(conn))
    conn.execute(sql.SQL("INSERT INTO {} VALUES (1, 'a'), (2, 'b')").format(table))
    conn.execute(sql.SQL("UPDATE {} SET v = 'c'").format(table))
    conn.execute(sql.SQL("DELETE FROM {} WHERE {} = 1").format(table, sql.Identifier(name)))
    assert watched.check().images == 7
    assert not triggers.missing(conn, watched.source.relid)
    assert not sources.drift(conn)


@pytest.mark.parametrize("by_row", [False, True], ids=["by statement", "by row"])
def test_columns_of_any_name_are_captured(conn: Connection, watch: Watch, by_row: bool) -> None:
    columns = sql.SQL(", ").join(
        sql.SQL("{} text").format(sql.Identifier(name)) for name in COLUMNS
    )
    conn.execute(sql.SQL("CREATE TABLE t ({})").format(columns))
    if by_row:
        conn.execute("CREATE TABLE parent (); ALTER TABLE t INHERIT parent")
    t = watch("t")
    values = sql.SQL(", ").join(sql.Literal(str(place)) for place in range(len(COLUMNS)))
    conn.execute(sql.SQL("INSERT INTO t VALUES ({})").format(values))
    for isolation in ("READ COMMITTED", "REPEATABLE READ"):
        conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        for name in COLUMNS:
            conn.execute(sql.SQL("UPDATE t SET {0} = {0} || 'x'").format(sql.Identifier(name)))
        conn.execute("COMMIT")
    assert t.check().images == 1 + 4 * len(COLUMNS)
    conn.execute("DELETE FROM t")
    t.check()


def test_a_renamed_table_is_still_captured(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE t (a int)")
    t = watch("t")
    conn.execute("INSERT INTO t VALUES (1)")
    conn.execute(
        "CREATE SCHEMA elsewhere; ALTER TABLE t RENAME TO u; ALTER TABLE u SET SCHEMA elsewhere"
    )
    conn.execute("INSERT INTO elsewhere.u VALUES (2)")
    assert t._slice().came.total() == 2
    assert not triggers.missing(conn, t.source.relid)


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("width", [350, 1590])
def test_a_wide_table_is_captured(
    conn: Connection, watch: Watch, width: int, isolation: str
) -> None:
    conn.execute(f"CREATE TABLE wide ({', '.join(f'c{n} boolean' for n in range(width))})")
    wide = watch("wide")
    conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    conn.execute("INSERT INTO wide (c0) SELECT g % 2 = 0 FROM generate_series(1, 20) AS g")
    conn.execute(f"UPDATE wide SET c{width - 1} = true WHERE c0")
    conn.execute("DELETE FROM wide WHERE NOT c0")
    conn.execute("COMMIT")
    assert wide.check().images == 20 + 2 * 10 + 10
