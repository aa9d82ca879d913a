"""The verb drop: the stream table, its state, its catalog rows, and capture nobody else needs."""

from __future__ import annotations

import psycopg

from millstream.capture import trigger
from millstream.catalog import relations, sources, stream_tables
from millstream.catalog.locks import Patience
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import StillUsed
from millstream.service import hand_over, keep
from millstream.service.app import App
from millstream.service.verb import verb

# For another process that refreshes the stream table.
WAITING = Patience(seconds=30.0)


@verb
def drop(app: App, name: str, *, cascade: bool = False) -> None:
    """Drop a stream table; with `cascade`, views and others that depend on its table too."""
    drop_table(app, app.named(name), cascade=cascade)


def drop_table(app: App, table: StreamTable, *, cascade: bool = False) -> None:
    """The same, for a table already found."""
    readers = [one for one in stream_tables.dependants(app.conn, table.id) if one.id != table.id]
    if readers and not cascade:
        raise StillUsed.by(table.name, [f"stream table {one.schema_name}.{one.name} reads it" for one in readers])
    for reader in readers:
        drop_table(app, reader, cascade=True)
    with app.mutex.stream_table(table.id, table.name, WAITING):
        _drop_locked(app, table, cascade)
        app.mutex.remove_rows()


def _drop_locked(app: App, table: StreamTable, cascade: bool) -> None:
    tail = " CASCADE" if cascade else ""
    try:
        with app.conn.transaction():
            # By oid: the name may belong to another table by now, and ours have another.
            for found in relations.names(app.conn, [table.relid] if table.relid else []):
                app.conn.execute(f"DROP TABLE {found}{tail}".encode())
            keep.drop(app.conn, table)
            stream_tables.remove(app.conn, table.id)
    except psycopg.errors.DependentObjectsStillExist as error:
        raise StillUsed.by(table.name, (error.diag.message_detail or "").splitlines()) from error
    app.forget(table.id)
    for source in sources.unread(app.conn):
        trigger.remove(app.conn, source.relid)
    hand_over.tidy(app)
