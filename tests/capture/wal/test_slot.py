"""The slot and its publication are those that were made, or capture does not resume."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millstream.capture.wal import slot
from millstream.catalog.installation import install
from millstream.catalog.slots import Slot
from millstream.errors import SlotLost
from millstream.postgres import relations
from millstream.postgres.connection import Connection


@pytest.fixture
def made(conn: Connection, database: str) -> Slot:
    """A slot and an empty publication."""
    install.install(conn)
    slot.publish(conn, [])
    return slot.create(conn, database)


def test_a_slot_as_it_was_made_is_resumed(conn: Connection, database: str, made: Slot) -> None:
    slot.check(conn, database, made)
    assert slot.ensure(conn, database) == made
    with pytest.raises(ValueError, match="already"):
        slot.create(conn, database)


OTHERWISE: dict[str, dict[str, Any]] = {
    "restored, promoted or replaced": {"system_identifier": "1"},
    "restored, .* or replaced": {"timeline": 99},
    "It belongs to another database": {"database_oid": 1},
    "The publication was created again": {"publication_oid": 1},
    "the server was reset to an earlier state": {"cursor": 2**62},
    "has stored changes only up to": {"cursor": 1},
}


def test_a_slot_that_was_made_as_another_is_not_resumed(
    conn: Connection, database: str, made: Slot
) -> None:
    for reason, change in OTHERWISE.items():
        with pytest.raises(SlotLost, match=reason):
            slot.check(conn, database, replace(made, **change))


def test_one_that_was_dropped_is_not_resumed_and_one_of_another_kind_neither(
    conn: Connection, database: str, made: Slot
) -> None:
    conn.execute("SELECT pg_drop_replication_slot(%s)", (made.name,))
    with pytest.raises(SlotLost, match="It was dropped"):
        slot.check(conn, database, made)
    conn.execute("SELECT pg_create_physical_replication_slot(%s)", (made.name,))
    with pytest.raises(SlotLost, match="Another slot has its name"):
        slot.check(conn, database, made)
    # It belongs to no database, and would be left.
    conn.execute("SELECT pg_drop_replication_slot(%s)", (made.name,))


def test_tables_are_added_to_the_publication_once_and_taken_out(conn: Connection) -> None:
    install.install(conn)
    conn.execute("CREATE TABLE t (id int)")
    oid = conn.execute("SELECT 't'::regclass::oid::int8").fetchall()[0][0]
    tables = relations.names(conn, [oid])
    assert slot.publish(conn, tables) == slot.publish(conn, tables) == slot.name_of(conn)
    assert slot.published(conn) == {oid}
    slot.withdraw(conn, tables)
    slot.withdraw(conn, tables)
    assert slot.published(conn) == set()


def test_dropping_takes_both_away_and_twice_is_no_error(
    conn: Connection, database: str, made: Slot
) -> None:
    slot.drop(conn, made.name)
    slot.drop(conn, made.name)
    assert conn.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", (made.name,)
    ).fetchone() == (0,)
    assert conn.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
