"""A value captured from WAL is the value a trigger captures, bit for bit, whatever its type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.capture.trigger import triggers
from millstream.capture.wal import slot
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.testing.values import declare

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log


def _tables(conn: Connection, log: Log, types: list[str]) -> tuple[int, int]:
    """Two tables with the same columns: one has triggers, the other is read from the log.

    Their oids.
    """
    columns = ", ".join(f"v{number} {name}" for number, name in enumerate(types))
    conn.execute(
        f"CREATE TABLE by_trigger (id int, {columns}); CREATE TABLE by_log (id int, {columns})"
    )
    logged = log.capture("by_log")
    oid = conn.execute("SELECT 'by_trigger'::regclass::oid").fetchall()[0][0]
    table = relations.table(conn, oid)
    triggers.install(conn, table, [column.name for column in table.columns])
    return oid, logged.source.relid


def _differences(conn: Connection, one: int, other: int, columns: int) -> list[tuple[object, ...]]:
    """Images that are in one buffer and not in the other; compared as they are stored, not by what
    `=` says.
    """
    listed = ", ".join(f"c{number + 1}" for number in range(columns + 1))
    images = f"(SELECT action, c1, ROW({listed}) AS image FROM millstream_changes.changes_{{}})"
    joined = (
        "SELECT a.action, a.c1, b.action, b.c1 FROM "
        f"{images.format(one)} AS a FULL JOIN {images.format(other)} AS b"
    )
    alike = "ON a.action = b.action AND a.c1 = b.c1 AND a.image *= b.image WHERE a.c1 IS NULL OR b.c1 IS NULL"
    return conn.execute(f"{joined} {alike}".encode()).fetchall()


def _both(conn: Connection, statement: str, values: list[str | None] | None = None) -> None:
    for table in ("by_trigger", "by_log"):
        conn.execute(statement.replace("TABLE", table).encode(), values)


ODD_SETTINGS = "DateStyle = 'SQL,DMY'; TimeZone = 'Asia/Kolkata'; IntervalStyle = iso_8601; bytea_output = escape"


@pytest.mark.parametrize("role_settings", ["", ODD_SETTINGS], ids=["plain", "odd"])
def test_values_of_every_type_are_the_same_as_by_trigger(
    conn: Connection, log: Log, role_settings: str
) -> None:
    types = declare(conn)
    for each in role_settings.split("; ") if role_settings else []:
        conn.execute(f"ALTER DATABASE {conn.info.dbname} SET {each}".encode())
    by_trigger, by_log = _tables(conn, log, list(types))
    log.start()
    firsts = [values[0] for values in types.values()]
    rows = [firsts] + [
        [*firsts[:place], value, *firsts[place + 1 :]]
        for place, values in enumerate(types.values())
        for value in values[1:]
    ]
    for number, values in enumerate(rows):
        _both(conn, f"INSERT INTO TABLE VALUES ({number}{', %s' * len(types)})", list(values))
    _both(conn, "UPDATE TABLE SET id = id + 1000")
    _both(conn, "DELETE FROM TABLE WHERE id % 2 = 0")
    log.settle()
    count = conn.execute(f"SELECT count(*) FROM millstream_changes.changes_{by_log}").fetchall()[0][
        0
    ]
    assert count == 3 * len(rows) + (len(rows) + 1) // 2
    assert _differences(conn, by_trigger, by_log, len(types)) == []


def test_each_column_goes_to_null_and_back(conn: Connection, log: Log) -> None:
    types = {name: values for name, values in declare(conn).items() if name != "positive"}
    by_trigger, by_log = _tables(conn, log, list(types))
    log.start()
    _both(conn, "INSERT INTO TABLE VALUES (0)")
    for place, values in enumerate(types.values()):
        _both(conn, f"UPDATE TABLE SET id = id + 1, v{place} = %s", [values[0]])
    for place in range(len(types)):
        _both(conn, f"UPDATE TABLE SET id = id + 1, v{place} = NULL")
    log.settle()
    assert _differences(conn, by_trigger, by_log, len(types)) == []


TEXTS = [
    "\\", "\\N", "\\.", "a\tb", "a\nb", "\r\n", "\v\f\b", "", " ", "'", '"', "\\x41", "\\t", "é注", "x" * 100000,
]  # fmt: skip


def test_texts_that_mean_something_to_copy_are_taken_as_they_are(
    conn: Connection, log: Log
) -> None:
    by_trigger, by_log = _tables(conn, log, ["text", "text"])
    log.start()
    for number, text in enumerate(TEXTS):
        _both(conn, f"INSERT INTO TABLE VALUES ({number}, %s, %s)", [text, text])
    log.settle()
    assert _differences(conn, by_trigger, by_log, 2) == []


def test_large_values_that_do_not_change_come_from_the_old_row(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int, v text, w text)")
    conn.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL, ALTER w SET STORAGE EXTERNAL")
    t = log.capture("t")
    log.start()
    conn.execute(
        "INSERT INTO t SELECT g, repeat(md5(g::text), 5000), NULL FROM generate_series(1, 3) AS g"
    )
    conn.execute("UPDATE t SET w = repeat('w', 10000) WHERE id < 3")
    conn.execute("UPDATE t SET id = id + 10")
    conn.execute("UPDATE t SET v = NULL WHERE id = 11")
    (taken,) = log.check(t)
    assert taken.images == 3 + 4 + 6 + 2


def test_stored_generated_columns_are_published_from_18_on(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a * 2) STORED)")
    if conn.info.server_version < 180000:
        t = log.capture("t")
        log.start()
        conn.execute("INSERT INTO t VALUES (1)")
        snapshot, _ = t.cut()
        log.settle()
        assert t.slice(snapshot).changed == 1, (
            "a captured column that is not in the log is not passed over"
        )
        return
    t = log.capture("t")
    log.start()
    conn.execute("INSERT INTO t VALUES (1), (2)")
    conn.execute("UPDATE t SET a = 5 WHERE a = 1")
    assert log.check(t)[0].images == 4


def test_a_value_that_cannot_be_read_back_marks_its_transaction_and_no_other(
    conn: Connection, log: Log
) -> None:
    conn.execute("CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TABLE t (id int, m mood)")
    t = log.capture("t")
    conn.execute("INSERT INTO t VALUES (1, 'happy')")
    conn.execute("INSERT INTO t VALUES (2, 'sad')")
    conn.execute("INSERT INTO t VALUES (3, 'happy'), (4, 'happy')")
    conn.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    conn.execute("INSERT INTO t VALUES (5, 'blue')")
    log.start()
    snapshot, _ = t.cut()
    log.settle()
    taken = t.slice(snapshot)
    assert taken.changed == 1
    assert sorted(row[1] or "" for row in taken.came) == ["1", "3", "4", "5"]


def test_names_are_read_back_as_they_were_meant(conn: Connection, log: Log) -> None:
    assert slot.name_of(conn).startswith("millstream_")
    by_trigger, by_log = _tables(conn, log, ["regclass", "regtype", "regnamespace"])
    log.start()
    conn.execute('CREATE SCHEMA s; CREATE TABLE s.pg_class (); CREATE TABLE "Odd name" ()')
    for number, name in enumerate(["s.pg_class", "pg_class", '"Odd name"']):
        _both(conn, f"INSERT INTO TABLE VALUES ({number}, %s, 'int[]', 's')", [name])
    log.settle()
    assert _differences(conn, by_trigger, by_log, 3) == []
