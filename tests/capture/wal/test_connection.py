"""The replication connection: its settings, and what refusals mean.

Broken networks: `test_interruptions.py`.
"""

from __future__ import annotations

import pytest

from millstream.capture.wal import slot
from millstream.capture.wal.connection import Stream, replication
from millstream.catalog.installation import install
from millstream.errors import ServerDown, SlotLost
from millstream.postgres.connection import Connection


def test_values_print_as_in_every_session_of_ours(conn: Connection, database: str) -> None:
    """A role's own DateStyle would otherwise be in the stream."""
    conn.execute("ALTER ROLE tester SET DateStyle = 'SQL, DMY'")
    try:
        with replication(database, "millstream test") as server:
            assert server.execute("SHOW DateStyle").fetchone() == ("ISO, MDY",)
            assert server.execute("SHOW wal_sender_timeout").fetchone() == ("1min",)
    finally:
        conn.execute("ALTER ROLE tester RESET DateStyle")


def test_a_server_that_is_not_there_is_down() -> None:
    with pytest.raises(ServerDown) as caught:
        replication("postgresql://me:hush@127.0.0.1:1/nowhere", "millstream test")
    assert "hush" not in str(caught.value)


def test_a_slot_that_does_not_exist_is_lost(conn: Connection, database: str) -> None:
    with pytest.raises(SlotLost, match="nosuch"):
        Stream(database, "nosuch", "nosuch", 0)


def test_a_stream_that_says_nothing_gives_no_frames_and_can_be_closed_at_once(
    conn: Connection, database: str
) -> None:
    install.install(conn)
    name = slot.publish(conn, [])
    made = slot.create(conn, database)
    stream = Stream(database, made.name, name, made.cursor)
    try:
        # Keepalives may come; no row does.
        assert all(frame[:1] == b"k" for frame in stream.receive(0.0))
        stream.send(made.cursor)
    finally:
        stream.close()
    slot.drop(conn, made.name)
