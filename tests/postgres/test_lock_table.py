"""The server's lock table: how much room it has, and what would have to be set for more."""

from __future__ import annotations

import psycopg
import pytest

from millstream.postgres import lock_table
from millstream.postgres.connection import Connection
from millstream.postgres.lock_table import LockTable


def test_the_room_is_a_share_of_what_others_have_left() -> None:
    assert LockTable(64, 100).room(0.5) == 3200
    assert LockTable(64, 100, held=6000).room(0.5) == 200
    assert LockTable(64, 100, held=9999).room(0.5) == 0


@pytest.mark.parametrize("locks", [1, 3200, 3201, 50_000])
@pytest.mark.parametrize("held", [0, 700])
def test_with_the_setting_that_is_named_there_is_room_and_with_one_less_there_is_not(
    locks: int, held: int
) -> None:
    table = LockTable(64, 100, held)
    setting = table.setting_for(locks, 0.5)
    assert LockTable(setting, 100, held).room(0.5) >= locks
    assert LockTable(setting - 1, 100, held).room(0.5) < locks


def test_locks_of_other_sessions_are_counted(conn: Connection, writer: psycopg.Connection) -> None:
    with writer.transaction():
        writer.execute("SELECT pg_advisory_xact_lock(77, n) FROM generate_series(1, 50) AS n")
        assert lock_table.read(conn).held >= 50
    assert lock_table.empty(conn).held == 0


def test_a_table_takes_a_lock_for_itself_and_for_each_index(conn: Connection) -> None:
    conn.execute(
        "CREATE TABLE bare (id int); CREATE TABLE indexed (id int PRIMARY KEY, v int UNIQUE)"
    )
    conn.execute("CREATE TABLE long (v text)")
    found = lock_table.weights(conn, [], ["public.bare", "public.indexed", "public.long"])
    assert found["public.bare"] < found["public.indexed"]
    assert found["public.bare"] < found["public.long"]
