"""A value of any type comes out of the buffer as it went into the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.catalog import sources
from millstream.postgres.connection import Connection
from millstream.testing.values import DEFINITIONS, declare

if TYPE_CHECKING:
    from tests.capture.conftest import Watch


@pytest.fixture
def types(conn: Connection) -> dict[str, list[str]]:
    """The types of this server, declared."""
    return declare(conn)


def test_values_of_every_type_are_captured_as_they_are(
    conn: Connection, watch: Watch, types: dict[str, list[str]]
) -> None:
    columns = list(types)
    conn.execute(
        f"CREATE TABLE t ({', '.join(f'v{n} {name}' for n, name in enumerate(columns))}, other int)"
    )
    # A domain that is NOT NULL has no NULL, so each row starts from the first value of every type.
    firsts = [types[name][0] for name in columns]
    t = watch("t", [f"v{n}" for n in range(len(columns))])
    insert = f"INSERT INTO t VALUES ({', '.join(['%s'] * len(columns))}, 0)"
    conn.execute(insert, firsts)
    for place, name in enumerate(columns):
        for value in types[name][1:]:
            conn.execute(insert, [*firsts[:place], value, *firsts[place + 1 :]])
    assert t.check().came.total() == 1 + sum(len(values) - 1 for values in types.values())
    conn.execute("UPDATE t SET other = 1")
    assert t.check().images == 0
    conn.execute("DELETE FROM t")
    t.check()


def test_each_column_goes_to_null_and_back(
    conn: Connection, watch: Watch, types: dict[str, list[str]]
) -> None:
    columns = [name for name in types if name != "positive"]
    conn.execute(f"CREATE TABLE t ({', '.join(f'v{n} {name}' for n, name in enumerate(columns))})")
    conn.execute("INSERT INTO t DEFAULT VALUES")
    t = watch("t")
    for place, name in enumerate(columns):
        conn.execute(f"UPDATE t SET v{place} = %s", (types[name][0],))
        assert t.check().images == 2, name
    for place in range(len(columns)):
        conn.execute(f"UPDATE t SET v{place} = NULL")
    t.check()


def test_buffer_columns_have_base_types_without_modifiers_and_keep_collations(
    conn: Connection, watch: Watch
) -> None:
    conn.execute(DEFINITIONS)
    conn.execute(
        'CREATE TABLE t (a positive, b varchar(3), c text COLLATE "C", d mood, e bit(3), f char(4), g positive[])'
    )
    t = watch("t")
    names = [column.type_name for column in t.source.columns]
    assert names == [
        "numeric",
        "character varying",
        "text",
        "public.mood",
        '"bit"',
        "bpchar",
        "public.positive[]",
    ]
    stored = conn.execute(
        "SELECT format_type(atttypid, atttypmod), attcollation = '\"C\"'::regcollation, attnotnull"
        f" FROM pg_attribute WHERE attrelid = 'millstream_changes.changes_{t.source.relid}'::regclass"
        " AND attname LIKE 'c_' ORDER BY attname"
    ).fetchall()
    assert [row[0].removeprefix("public.") for row in stored] == [
        name.removeprefix("public.") for name in names
    ]
    assert [row[1] for row in stored] == [False, False, True, False, False, False, False]
    assert not any(row[2] for row in stored)


def test_a_value_too_long_for_a_line_is_captured(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE t (id int, v text, w text)")
    conn.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    t = watch("t", ["id", "v"])
    conn.execute(
        "INSERT INTO t SELECT g, repeat(md5(g::text), 50000), '' FROM generate_series(1, 3) AS g"
    )
    conn.execute("UPDATE t SET w = 'unseen'")
    assert t.check().images == 3
    conn.execute("UPDATE t SET v = v || '!' WHERE id = 2")
    assert t.check().images == 2


def test_stored_generated_columns_are_captured(conn: Connection, watch: Watch) -> None:
    conn.execute(
        "CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a * 2) STORED, i int GENERATED ALWAYS AS IDENTITY)"
    )
    t = watch("t")
    conn.execute("INSERT INTO t (a) VALUES (1), (2)")
    conn.execute("UPDATE t SET a = 5 WHERE a = 1")
    assert t.check().images == 4


@pytest.mark.parametrize("by_row", [False, True], ids=["by statement", "by row"])
def test_virtual_generated_columns_are_captured(
    conn: Connection, watch: Watch, by_row: bool
) -> None:
    if conn.info.server_version < 180000:
        pytest.skip("virtual generated columns came with PostgreSQL 18")
    conn.execute(
        'CREATE TABLE t (a int, b int, "tg_op" int GENERATED ALWAYS AS (a * 2 + 1) VIRTUAL,'
        " s text GENERATED ALWAYS AS ('<' || b || '>') VIRTUAL)"
    )
    if by_row:
        conn.execute("CREATE TABLE parent (); ALTER TABLE t INHERIT parent")
    t = watch("t", ["tg_op", "s"])
    conn.execute("INSERT INTO t VALUES (1, 10), (2, 20)")
    conn.execute("UPDATE t SET a = 5 WHERE a = 1")
    conn.execute("DELETE FROM t WHERE a = 2")
    taken = t.check()
    assert taken.came == {("", "3", "<10>"): 1, ("", "5", "<20>"): 1, ("", "11", "<10>"): 1}
    conn.execute("ALTER TABLE t RENAME a TO z")
    conn.execute("INSERT INTO t VALUES (7, 70)")
    assert t.skip().changed == 1, "the expression is made of a column that was renamed"
    t = watch("t", ["tg_op", "s"])
    conn.execute("ALTER TABLE t ALTER s SET EXPRESSION AS ('[' || b || ']')")
    assert t.source.relid in sources.drift(conn)
