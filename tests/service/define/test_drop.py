"""Dropping a stream table: all of it goes, or nothing does and the reason is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import millstream
from millstream import Millstream
from millstream.errors import LockNotHad, StillUsed, TargetMoved
from millstream.postgres.connection import Connection, connect
from millstream.postgres.table_locks import Patience
from millstream.service.define import drop

# What is left of stream tables, triggers, functions, buffers and state.
LEFT = """
    SELECT 'relation', oid::regclass::text FROM pg_class
    WHERE relnamespace IN ('millstream_changes'::regnamespace, 'millstream_state'::regnamespace, 'shop'::regnamespace)
    UNION ALL SELECT 'function', proname FROM pg_proc
    WHERE pronamespace = 'millstream_changes'::regnamespace AND proname LIKE 'capture%'
    UNION ALL SELECT 'trigger', tgname || ' on ' || tgrelid::regclass FROM pg_trigger AS t
    JOIN pg_class AS c ON c.oid = tgrelid WHERE NOT tgisinternal AND c.relnamespace <> 'millstream'::regnamespace
    UNION ALL SELECT 'stream table', name FROM millstream.stream_tables
    UNION ALL SELECT 'source', name FROM millstream.sources
    UNION ALL SELECT 'lock', stream_table_id::text FROM millstream.locks
    ORDER BY 1, 2
"""


def left(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute(LEFT).fetchall()


@pytest.fixture
def mill(conn: Connection, database: str) -> Iterator[Millstream]:
    """Millstream as a role that is no superuser, a member of the role "shop_..." that owns the
    source shop.orders.
    """
    mill, shop = f"mill_{conn.info.dbname}", f"shop_{conn.info.dbname}"
    conn.execute(f"CREATE ROLE {mill} LOGIN; CREATE ROLE {shop}; GRANT {shop} TO {mill}")
    conn.execute(
        f"GRANT CREATE ON DATABASE {conn.info.dbname} TO {mill}; GRANT CREATE ON SCHEMA public TO {mill}"
    )
    conn.execute(
        f"CREATE SCHEMA shop AUTHORIZATION {shop}; CREATE TABLE shop.orders (id int, amount int)"
    )
    conn.execute(f"ALTER TABLE shop.orders OWNER TO {shop}")
    with millstream.connect(database.replace("tester@", f"{mill}@")) as ms:
        yield ms
    conn.execute(f"DROP OWNED BY {mill}, {shop} CASCADE; DROP ROLE {mill}; DROP ROLE {shop}")


def test_a_source_that_is_no_longer_ours_to_alter_is_released_all_the_same(
    conn: Connection, database: str, mill: Millstream
) -> None:
    """The bug: the table was gone, then the trigger could not be dropped, and the error left the
    rest for ever.
    """
    before = left(conn)
    mill.create_stream_table("m", "SELECT id, amount FROM shop.orders", initialize=False)
    mill_role, shop = mill.app.conn.info.user, mill.app.conn.info.user.replace("mill", "shop")
    conn.execute(f"REVOKE {shop} FROM {mill_role}")
    with connect(database) as writer:
        writer.execute("INSERT INTO shop.orders VALUES (1, 1)")
    mill.drop_stream_table("m")
    assert left(conn) == before
    conn.execute("INSERT INTO shop.orders VALUES (2, 2)")


@pytest.mark.parametrize("way", ["drop", "uninstall"])
def test_a_source_given_to_a_stranger_in_a_closed_schema_is_released(
    conn: Connection, mill: Millstream, way: str
) -> None:
    mill.create_stream_table("m", "SELECT id FROM shop.orders", initialize=False)
    mill.create_stream_table("n", "SELECT id FROM m", initialize=False)
    conn.execute("ALTER TABLE shop.orders OWNER TO tester; ALTER SCHEMA shop OWNER TO tester")
    if way == "drop":
        mill.drop_stream_table("m", cascade=True)
        assert [kind for kind, _ in left(conn)] == ["relation"], "only the source is left"
    mill.uninstall()
    assert conn.execute("SELECT count(*) FROM pg_trigger").fetchall() == [(0,)]
    conn.execute("INSERT INTO shop.orders VALUES (2, 2)")
    for table in ("m", "n"):
        with pytest.raises(psycopg.errors.UndefinedTable):
            conn.execute(f"SELECT * FROM {table}")


def test_a_replica_identity_that_is_not_ours_to_set_back_is_left(
    conn: Connection, mill: Millstream
) -> None:
    mill.create_stream_table("m", "SELECT id FROM shop.orders", initialize=False)
    conn.execute("ALTER TABLE shop.orders REPLICA IDENTITY FULL")
    conn.execute(
        "UPDATE millstream.sources SET identities = jsonb_build_object(relid::text, 'DEFAULT') WHERE name = 'orders'"
    )
    conn.execute("ALTER TABLE shop.orders OWNER TO tester; ALTER SCHEMA shop OWNER TO tester")
    mill.drop_stream_table("m")
    assert conn.execute(
        "SELECT relreplident FROM pg_class WHERE oid = 'shop.orders'::regclass"
    ).fetchall() == [("f",)]


@pytest.mark.parametrize("cascade", [False, True])
def test_a_drop_that_cannot_have_its_locks_does_nothing(
    conn: Connection, mill: Millstream, monkeypatch: pytest.MonkeyPatch, cascade: bool
) -> None:
    """The bug: the stream table was dropped first, then the lock on its source was asked for."""
    mill.create_stream_table("m", "SELECT id FROM shop.orders", initialize=False)
    if cascade:
        mill.create_stream_table("n", "SELECT id FROM m", initialize=False)
    before = left(conn)
    monkeypatch.setattr(drop, "PATIENT", Patience(lock_timeout=0.05, seconds=0.2))
    conn.execute("BEGIN; INSERT INTO shop.orders VALUES (1, 1)")
    with pytest.raises(LockNotHad) as raised:
        mill.drop_stream_table("m", cascade=cascade)
    assert f"process {conn.info.backend_pid} (" in raised.value.detail
    conn.execute("ROLLBACK")
    assert left(conn) == before
    mill.drop_stream_table("m", cascade=cascade)
    assert [kind for kind, _ in left(conn)] == ["relation"]


def test_what_is_still_used_stays_whole(conn: Connection, mill: Millstream) -> None:
    mill.create_stream_table("m", "SELECT id FROM shop.orders", initialize=False)
    mill.create_stream_table("n", "SELECT id FROM m", initialize=False)
    conn.execute("CREATE VIEW shop.v AS SELECT * FROM n")
    before = left(conn)
    for name in ("m", "n"):
        with pytest.raises(StillUsed):
            mill.drop_stream_table(name)
        assert left(conn) == before
    mill.drop_stream_table("m", cascade=True)
    assert [kind for kind, _ in left(conn)] == ["relation"]


def test_a_source_that_another_stream_table_reads_stays_captured(
    conn: Connection, mill: Millstream
) -> None:
    mill.create_stream_table("m", "SELECT id FROM shop.orders", initialize=False)
    before = left(conn)
    mill.create_stream_table("n", "SELECT id, amount FROM shop.orders", initialize=False)
    mill.drop_stream_table("n")
    assert left(conn) == before


@pytest.mark.spark
def test_drop_takes_neither_a_renamed_table_nor_one_that_has_its_name(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """Drop went by the oid alone; after a restore that was a table of the user's."""
    writer.execute("CREATE TABLE t (id int PRIMARY KEY)")
    ms.create_stream_table("st", "SELECT id FROM t")
    writer.execute("ALTER TABLE st RENAME TO st_kept; CREATE TABLE st AS SELECT 'precious' AS word")
    with pytest.raises(TargetMoved, match="st_kept"):
        ms.drop_stream_table("st")
    ms.drop_stream_table("st", forget=True)
    assert writer.execute("SELECT word FROM st").fetchall() == [("precious",)]
    assert writer.execute("SELECT count(*) FROM st_kept").fetchone() == (0,)
    assert ms.status() == []
