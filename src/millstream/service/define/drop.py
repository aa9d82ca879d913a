"""The verb drop: drop the stream table, its state, its catalog rows, and capture that no other one
needs.

All of it is one transaction that first takes every lock that it needs: either everything is
dropped, or nothing and an error says why. The replication slot is dropped afterwards, since that
cannot be rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import psycopg
from psycopg import sql

from millstream.capture.transition import transitions
from millstream.capture.trigger import triggers
from millstream.catalog import sources, stream_tables
from millstream.catalog.stream_tables import StreamTable
from millstream.catalog.target import targets, write_guard
from millstream.errors import StillUsed
from millstream.observe.failpoint import failpoint
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.table_locks import PATIENT, Patience, under_lock
from millstream.service import block_tables
from millstream.service.app import App
from millstream.service.verb import verb

# Seconds to wait for another process that refreshes the stream table.
WAITING = Patience(seconds=30.0)


@verb
def drop(app: App, name: str, *, cascade: bool = False, forget: bool = False) -> None:
    """Drop a stream table; with `cascade`, views and others that depend on its table too.

    With `forget`, the table with its rows remains as an ordinary table.
    """
    drop_table(app, app.named(name), cascade=cascade, forget=forget)


def drop_table(
    app: App, table: StreamTable, *, cascade: bool = False, forget: bool = False
) -> None:
    """Drop a stream table given as its catalog row."""
    doomed = _doomed(app, table, cascade=cascade)
    with ExitStack() as locked:
        for one in doomed:
            locked.enter_context(app.mutex.stream_table(one.id, one.name, WAITING))
        _drop_at_once(app, doomed, cascade, {table.id} if forget else set())
        app.mutex.remove_rows()
    failpoint("drop_committed")
    for one in doomed:
        app.forget(one.id)
    transitions.tidy(app)


def _doomed(app: App, table: StreamTable, *, cascade: bool) -> list[StreamTable]:
    """Return the stream table and, with `cascade`, its readers to any depth, each after its own
    readers.
    """
    found, following = dict[int, StreamTable](), [table]
    while following:
        one = following.pop()
        found.pop(one.id, None)
        found[one.id] = one
        dependants = stream_tables.dependants(app.conn, one.id)
        readers = [reader for reader in dependants if reader.id not in (one.id, table.id)]
        if readers and not cascade:
            raise StillUsed.by(
                table.name, [f"stream table {reader.qualified} reads it" for reader in readers]
            )
        following += readers
    return list(reversed(found.values()))


def _drop_at_once(
    app: App, doomed: Sequence[StreamTable], cascade: bool, forgotten: set[int]
) -> None:
    """Drop stream tables, and capture that no other one needs, in one transaction that takes all
    locks first.
    """
    conn, ids = app.conn, [one.id for one in doomed]
    stored = [_stored(conn, one) for one in doomed if one.id not in forgotten]
    left = relations.alterable(
        conn, [one.relid for one in doomed if one.relid and one.id in forgotten]
    )
    captured = triggers.captured_tables(conn, sources.read_only_by(conn, ids))
    tables = [table for table in stored if table] + left + captured
    each = list({table.oid: table for table in tables}.values())
    under_lock(
        conn, each, "ACCESS EXCLUSIVE", lambda: _drop_each(app, doomed, cascade, forgotten), PATIENT
    )


def _drop_each(app: App, doomed: Sequence[StreamTable], cascade: bool, forgotten: set[int]) -> None:
    conn = app.conn
    app.hold_epoch()
    for table in doomed:
        if table.id not in forgotten:
            _drop_stored(conn, table, cascade)
        block_tables.drop(conn, table)
        stream_tables.remove(conn, table.id)
    for source in sources.unread(conn):
        triggers.take_away(conn, source.relid)
    if forgotten:
        write_guard.remove_left_over(conn)
    failpoint("drop_uncommitted")


def _stored(conn: Connection, table: StreamTable) -> Name | None:
    return targets.ours(conn, table.id, table.name)


def _drop_stored(conn: Connection, table: StreamTable, cascade: bool) -> None:
    """Drop the table with the rows, if it still exists and is certainly the recorded one."""
    drop = sql.SQL("DROP TABLE {} CASCADE" if cascade else "DROP TABLE {}")
    found = _stored(conn, table)
    try:
        if found:
            conn.execute(drop.format(found.identifier))
    except psycopg.errors.DependentObjectsStillExist as error:
        raise StillUsed.by(table.name, (error.diag.message_detail or "").splitlines()) from error
