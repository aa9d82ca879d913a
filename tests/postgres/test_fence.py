"""Whatever commits something holds the fence of its session: a process that leads no more changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

import millstream
from millstream.capture.transition import cutover
from millstream.capture.trigger import triggers
from millstream.capture.wal import slot
from millstream.catalog import slots, sources
from millstream.catalog.processes import leadership
from millstream.catalog.slots import Slot
from millstream.errors import Deposed
from millstream.postgres import fence, relations
from millstream.postgres.connection import Connection, connect
from millstream.postgres.table_locks import read_committed


def test_a_session_has_at_most_one_fence_and_keeps_it_to_itself(
    conn: Connection, database: str
) -> None:
    held = list[str]()
    fence.put(conn, lambda held_in: held.append("first"))
    fence.put(conn, lambda held_in: held.append("second"))
    with connect(database) as other:
        fence.hold(other)
    fence.hold(conn)
    with read_committed(conn), read_committed(conn):
        held.append("work")
    fence.put(conn, None)
    fence.hold(conn)
    assert held == ["second", "work", "second"]


def test_a_former_leader_changes_neither_capture_nor_what_is_recorded(
    database: str, conn: Connection
) -> None:
    """Its sessions are ended by the new leader, but one statement may already be on its way."""
    conn.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    with millstream.connect(database) as ms:
        ms.create_stream_table("st", "SELECT id FROM t", initialize=False)
        former, [source] = ms.app, sources.every(conn)
        conn.execute("UPDATE millstream.stream_tables SET planned_by = 'an older version'")
        conn.execute("DELETE FROM millstream.dependencies")
        slots.put(conn, Slot("millstream_x", "millstream_x", 1, 1, "1", 1, 1, 1))
        before = _recorded(conn)
        former.epoch = leadership.take_over(conn, uuid4())
        leadership.take_over(conn, uuid4())
        former.forget(former.named("st").id)
        attempts: dict[str, Callable[[], object]] = {
            "install": lambda: triggers.install(
                former.conn, relations.table(former.conn, _oid(conn, "u")), ["id"]
            ),
            "remove": lambda: triggers.remove(former.conn, source.relid),
            "begin a transition": lambda: cutover.begin(former.conn, source.relid),
            "drop the slot": lambda: slot.drop(former.conn, "millstream_x"),
            "create a slot": lambda: slot.create(former.conn, database),
            "plan": lambda: former.job(former.named("st")),
        }
        for what, attempt in attempts.items():
            with pytest.raises(Deposed):
                attempt()
            assert _recorded(conn) == before, what
        former.epoch = None
        triggers.remove(former.conn, source.relid)
        assert _recorded(conn) != before


def _oid(conn: Connection, name: str) -> int:
    found: int = conn.execute("SELECT %s::regclass::oid", (name,)).fetchall()[0][0]
    return found


def _recorded(conn: Connection) -> list[tuple[str, ...]]:
    query = (
        "SELECT relid::text, cdc_mode FROM millstream.sources UNION ALL SELECT name, planned_by"
        " FROM millstream.stream_tables UNION ALL SELECT name, '' FROM millstream.slots"
        " UNION ALL SELECT tgrelid::text, tgname::text FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2"
    )
    return conn.execute(query).fetchall()
