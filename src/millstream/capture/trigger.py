"""Set up capture by triggers on a source, extend it, repair it, take it away.

Everything happens in one transaction under a SHARE ROW EXCLUSIVE lock on the source and all its members.
The lock waits for every transaction that has written to them and keeps new ones out, so none straddles:
what was written before is visible to any cut taken after, what is written after goes through the new
function. The lock is asked for gently (see `catalog/locks.py`).

Setting up again what is whole only adds columns. Setting up again what has a gap (a trigger was missing or
disabled, a member came or went, a captured column changed) also leaves an X in the buffer: from the rows
before it alone the change cannot be told, so each reader whose slice holds the X must reinitialise.

    frontier .. I D I .. DISABLE TRIGGER .. lost writes .. install: X .. I D .. cut
                                                                     └─ in the slice: reinitialise
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import errors, sql

from millstream.algebra.table import Table
from millstream.capture import buffer_table
from millstream.capture.function import Images, definition, function_name
from millstream.capture.inventory import Found, gaps, missing, superfluous, triggers
from millstream.capture.levels import Tree, trees
from millstream.catalog import sources
from millstream.catalog.locks import PATIENT, Patience, under_lock
from millstream.catalog.relations import Name
from millstream.catalog.sources import CapturedColumn, Source
from millstream.errors import SourceChanged
from millstream.store.connection import Connection
from millstream.store.statements import load

__all__ = ["gaps", "install", "missing", "remove"]

_SQL = load("millstream.capture", "trigger.sql")


# -- setting up ------------------------------------------------------------------------------


def install(conn: Connection, table: Table, columns: Sequence[str], *, patience: Patience = PATIENT) -> Source:
    """Capture these columns of a table, besides those captured already; return the source as recorded.

    Call it outside a transaction: the cut of whoever will read the buffer must come after its commit.
    """
    root = Name(table.oid, table.schema, table.name)
    return under_lock(conn, [root], "SHARE ROW EXCLUSIVE", lambda: _set_up(conn, root, columns), patience)


def _set_up(conn: Connection, root: Name, asked: Sequence[str]) -> Source:
    # Read under the lock: what the caller read before may be of yesterday.
    tree = trees(conn, [root.oid]).get(root.oid)
    if tree is None:
        raise SourceChanged.shape(str(root), "The table was dropped.")
    former = sources.get(conn, root.oid)
    trouble = _trouble(conn, root.oid) if former else ""
    images = _images(conn, tree, former, asked)
    buffer_table.make(conn, root.oid, images.columns)
    _make_triggers(conn, tree, images)
    if trouble:
        buffer_table.mark(conn, root.oid)
    mode = former.mode if former else "TRIGGER"
    source = Source(root.oid, root.schema, root.name, mode, images.columns, tree.members)
    sources.add(conn, source)
    return source


def _trouble(conn: Connection, relid: int) -> str:
    """Why what was captured so far does not tell the whole change; empty when it does."""
    found = [*missing(conn, relid), *sources.drift(conn, [relid]).values()]
    return "; ".join(found)


def _images(conn: Connection, tree: Tree, former: Source | None, asked: Sequence[str]) -> Images:
    """What is to be captured: what was asked for, and what others rely on as far as it is still there."""
    rows = conn.execute(_SQL["columns"], {"relid": tree.relid}).fetchall()
    found = {row[1]: (CapturedColumn(*row[:7]), row[7], row[8]) for row in rows}
    for name in asked:
        if name not in found:
            raise SourceChanged.shape(str(tree.tables[0]), f'It has no column "{name}".')
    kept = [column.name for column in former.columns] if former else []
    wanted = {*asked, *kept, *sources.needed(conn, tree.relid)} & found.keys()
    chosen = sorted((found[name] for name in wanted), key=lambda each: each[0].attnum)
    made_of = {attnum for _, expression, parts in chosen if expression for attnum in parts}
    watched = [column for column, _, _ in found.values() if column.name in wanted or column.attnum in made_of]
    columns = tuple(column for column, _, _ in chosen)
    expressions = tuple(expression for _, expression, _ in chosen)
    return Images(tree.relid, tree.level, columns, tuple(watched), expressions)


# -- triggers --------------------------------------------------------------------------------


def _make_triggers(conn: Connection, tree: Tree, images: Images) -> None:
    name = function_name(tree.relid)
    conn.execute(definition(conn, images))
    # Nobody may hang our function on a table of their own and write into the buffer through it.
    conn.execute(sql.SQL("REVOKE ALL ON FUNCTION {}() FROM PUBLIC").format(name))
    _drop(conn, superfluous(tree, triggers(conn, [tree.relid])[tree.relid]))
    for trigger in tree.triggers():
        for statement in trigger.statements():
            conn.execute(statement)


def _drop(conn: Connection, found: Sequence[Found]) -> None:
    for each in found:
        drop = sql.SQL("DROP TRIGGER {} ON {}").format(sql.Identifier(each.name), each.table.identifier)
        conn.execute(drop)


# -- taking away -----------------------------------------------------------------------------


def remove(conn: Connection, relid: int, *, patience: Patience = PATIENT) -> bool:
    """End the capture from a source that no stream table reads any more, and forget the source.

    The table may be gone already; then only our own things go. False when a stream table reads the source
    after all, one that is being created this moment for example: then everything stays.
    """
    tables = list({each.table.oid: each.table for each in triggers(conn, [relid])[relid]}.values())
    try:
        under_lock(conn, tables, "ACCESS EXCLUSIVE", lambda: _take_away(conn, relid), patience)
    except errors.ForeignKeyViolation:
        return False
    return True


def _take_away(conn: Connection, relid: int) -> None:
    # First, because it fails where a stream table depends on the source.
    sources.remove(conn, relid)
    _drop(conn, triggers(conn, [relid])[relid])
    conn.execute(sql.SQL("DROP FUNCTION IF EXISTS {}()").format(function_name(relid)))
    buffer_table.drop(conn, relid)
