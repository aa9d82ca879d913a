"""Set up trigger capture of a source, extend it, repair it and remove it.

Everything happens in one transaction under a SHARE ROW EXCLUSIVE lock on the source and all its partitions.
The lock waits for every transaction that has written to them and blocks new ones:
everything written before is visible to any later cut, everything written later fires the new
triggers. Waiting for the lock must not block other writers for long (see `postgres/table_locks.py`).

Setting up an intact source again only adds columns. Setting up a source with a gap (a trigger was
missing or disabled, a partition was attached or detached, a captured column changed) also writes an
X into the buffer: the images before it are incomplete, so each reader whose slice contains the X
must reinitialise.

    frontier .. I D I .. DISABLE TRIGGER .. lost writes .. install: X .. I D .. cut
                                                                     └─ in the slice: reinitialise
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg import errors, sql

from millstream.algebra.table import SourceTable
from millstream.capture.buffer import buffer_table
from millstream.capture.buffer.slices import SCHEMA
from millstream.capture.trigger import inventory
from millstream.capture.trigger.function import (
    CapturedImages,
    Watch,
    body,
    definition,
    function_name,
)
from millstream.capture.trigger.inventory import (
    Found,
    gaps,
    lacking,
    missing,
    superfluous,
    triggers,
)
from millstream.capture.trigger.layout import Tree, trees
from millstream.capture.wal import publication, slot
from millstream.catalog import sources
from millstream.catalog.sources import CHANGED, RETURNED, CapturedColumn, Cutover, Source
from millstream.errors import BadSource, SourceChanged
from millstream.frontier.snapshot import Snapshot
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.sql_files import load
from millstream.postgres.table_locks import PATIENT, Patience, under_lock

__all__ = ["follow_columns", "gaps", "install", "missing", "remove"]

_SQL = load("millstream.capture.trigger", "triggers.sql")


@dataclass(frozen=True)
class WalReturn:
    """Why a source must return from WAL to triggers; no reason if it need not."""

    reason: str = ""
    is_lost: bool = False
    """True if changes may be missing from WAL, so that the readers must reinitialise."""


STAY = WalReturn()


# -- setting up ------------------------------------------------------------------------------


def install(
    conn: Connection,
    table: SourceTable,
    columns: Sequence[str],
    *,
    patience: Patience = PATIENT,
    back: WalReturn = STAY,
) -> Source:
    """Capture these columns of a table, in addition to those already captured; return the source as
    recorded.

    A source that is captured from WAL stays so, unless its columns or gaps require triggers, or `back` gives a
    reason. Call it outside of a transaction: readers of the buffer must take their cut
    after this has committed.
    """
    root = Name(table.oid, table.schema, table.name)
    try:
        return under_lock(
            conn,
            [root],
            "SHARE ROW EXCLUSIVE",
            lambda: _set_up(conn, root, columns, back),
            patience,
        )
    except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
        raise _moved(root) from error
    except errors.TooManyColumns as error:
        why = "Stream tables use more of its columns than its change buffer, which is a table, can have."
        raise BadSource.of(root.title, why, "Use fewer of its columns in stream tables.") from error


def follow_columns(conn: Connection, root: Name) -> None:
    """Set capture up again for a table whose columns the caller has altered, in the same
    transaction.

    Without it, the next write to the table would fail: its triggers name columns, and their types,
    as they were.
    """
    if sources.get(conn, root.oid) is not None and sources.drift_by_column(conn, [root.oid]).get(
        root.oid
    ):
        _set_up(conn, root, (), STAY)


def _moved(root: Name) -> SourceChanged:
    return SourceChanged.shape(str(root), "It was dropped or renamed.")


def _set_up(conn: Connection, root: Name, asked: Sequence[str], back: WalReturn) -> Source:
    """Create what is missing, under the lock, and record the source; `asked` are columns to capture
    in addition.
    """
    # Read under the lock: what the caller read before may be outdated.
    tree = trees(conn, [root.oid]).get(root.oid)
    if tree is None or tree.tables[0] != root:
        raise _moved(root)
    former = sources.get_for_update(conn, root.oid)
    drift = sources.drift_by_column(conn, [root.oid]).get(root.oid, {}) if former else {}
    gap = _gap(conn, former, drift) if former else ""
    has_gap = back.is_lost or bool(gap)
    columns = _columns(conn, tree)
    images = _images(conn, tree, columns[root.oid], former, asked)
    if (
        former
        and former.mode == "WAL"
        and not (has_gap or back.reason)
        and images.columns == former.columns
    ):
        return former
    buffer_table.make(conn, root.oid, images.columns)
    _make_functions(conn, tree, images, columns)
    _make_triggers(conn, tree)
    if has_gap:
        buffer_table.mark(conn, root.oid, "LOG_LOST" if back.is_lost else _cause(drift))
    source = Source(root.oid, root.schema, root.name, "TRIGGER", images.columns, tree.partitions)
    if former:
        # Altered columns are no failure: the source may start another transition at once.
        returned = f"{CHANGED if drift else RETURNED}{gap.removesuffix('.')}."
        why = (
            WalReturn(back.reason or returned, back.is_lost)
            if former.mode == "WAL" and has_gap
            else back
        )
        source = _continued(conn, source, former, why, has_gap=has_gap)
    sources.put(conn, source)
    return source


def _gap(conn: Connection, former: Source, drift: Mapping[str, str]) -> str:
    """Return why the changes captured so far are incomplete; "" if they are complete.

    They are complete if a column was only renamed: the buffer identifies it by its number, and a
    write in between
    """
    if former.mode == "TRIGGER" and sources.only_renamed(drift):
        drift = {}
    return "; ".join(inventory.gaps_of(conn, [former])[former.relid]) or next(
        iter(drift.values()), ""
    )


def _cause(drift: Mapping[str, str]) -> str:
    """Return the reason code of a gap.

    A new partition lacks triggers too, but then those are not the cause.
    """
    if any(difference != sources.PARTITIONS_CHANGED for difference in drift.values()):
        return "SOURCE_CHANGED"
    return "PARTITIONS_CHANGED" if drift else "CAPTURE_GAP"


def _continued(
    conn: Connection, source: Source, former: Source, back: WalReturn, *, has_gap: bool
) -> Source:
    """Return the source with the state of its transition, now that triggers capture these columns."""
    # With a gap, readers reinitialise and read no older images, so cutovers are no longer needed.
    cutovers = () if has_gap else former.cutovers
    source = replace(
        source, cutovers=cutovers, reason=back.reason or former.reason, identities=former.identities
    )
    if former.mode == "TRANSITIONING" and not back.is_lost:
        # WAL capture may have stored other columns so far: its rows count from now on, at the
        # earliest.
        return replace(source, mode="TRANSITIONING")
    if former.mode != "WAL" or has_gap:
        return source
    # Taken under the lock: transactions that wrote before are visible, later writes fire the
    # triggers.
    seen = Snapshot.parse(conn.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0])
    return replace(
        source,
        cutovers=(*source.cutovers, Cutover(seen, "l")),
        reason=back.reason or "Stream tables read more of its columns.",
    )


# -- what is captured ------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnNow:
    """A column of a table, with its present definition."""

    column: CapturedColumn
    expression: str | None
    """The expression of a virtual generated column; None for other columns."""
    made_of: tuple[int, ...]
    """The attnums in the expression of a virtual generated column."""


# By table, then by name.
Columns = dict[int, dict[str, ColumnNow]]


def _columns(conn: Connection, tree: Tree) -> Columns:
    found: Columns = {table.oid: {} for table in tree.tables}
    for oid, *facts, expression, made_of in conn.execute(_SQL["columns"], (list(found),)):
        column = CapturedColumn(*facts)
        found[oid][column.name] = ColumnNow(column, expression, tuple(made_of))
    return found


def _images(
    conn: Connection,
    tree: Tree,
    found: dict[str, ColumnNow],
    former: Source | None,
    asked: Sequence[str],
) -> CapturedImages:
    """Return what to capture: the requested columns, and those of other readers that still exist."""
    for name in asked:
        if name not in found:
            raise SourceChanged.shape(str(tree.tables[0]), f'It has no column "{name}".')
    attnums = {column.attnum for column in former.columns} if former else set()
    kept = {name for name, each in found.items() if each.column.attnum in attnums}
    wanted = {*asked, *kept, *sources.needed_columns(conn, tree.relid)} & found.keys()
    chosen = sorted((found[name] for name in wanted), key=lambda each: each.column.attnum)
    columns = tuple(each.column for each in chosen)
    return CapturedImages(
        tree.relid, tree.level, columns, tuple(each.expression for each in chosen)
    )


def _watch(images: CapturedImages, table: int, columns: Columns) -> Watch:
    """Return the columns of a table that its function refers to, with this table's attnums."""
    root = columns[images.relid]
    chosen = [root[column.name] for column in images.columns]
    made_of = {attnum for each in chosen if each.expression for attnum in each.made_of}
    named = {column.name for column in images.columns}
    named |= {name for name, each in root.items() if each.column.attnum in made_of}
    return Watch(
        table, tuple(each.column for name, each in columns[table].items() if name in named)
    )


# -- functions and triggers ------------------------------------------------------------------


# Writers wait while these two run: each changes only what differs, in one round trip.


def _make_functions(conn: Connection, tree: Tree, images: CapturedImages, columns: Columns) -> None:
    """Create or replace the functions whose text differs."""
    there = inventory.functions(conn, tree.relid)
    statements: list[sql.Composed] = []
    for table in tree.tables:
        name = function_name(tree.relid, table.oid)
        text = body(images, _watch(images, table.oid, columns)).as_string(conn)
        if there.get(name) != text:
            statements += definition(name, text)
    _execute(conn, statements)


def _make_triggers(conn: Connection, tree: Tree) -> None:
    """Drop superfluous triggers and functions, and create missing triggers."""
    there = triggers(conn, [tree.relid])[tree.relid]
    statements = _drops(superfluous(tree, there))
    for trigger in lacking(tree, there):
        statements += trigger.statements()
    _execute(conn, statements)
    _drop_functions(
        conn, tree.relid, keep={function_name(tree.relid, table.oid) for table in tree.tables}
    )


def _drops(found: Sequence[Found]) -> list[sql.Composed]:
    drop = sql.SQL("DROP TRIGGER {} ON {}")
    return [drop.format(sql.Identifier(each.name), each.table.identifier) for each in found]


def _drop_functions(conn: Connection, relid: int, keep: set[str], *, cascade: bool = False) -> None:
    # CASCADE drops their triggers too, on tables of any owner: the owner of a function may drop
    # what depends on it.
    drop = sql.SQL("DROP FUNCTION {}() CASCADE" if cascade else "DROP FUNCTION {}()")
    names = [name for name in inventory.functions(conn, relid) if name not in keep]
    _execute(conn, [drop.format(sql.Identifier(SCHEMA, name)) for name in names])


def _execute(conn: Connection, statements: Sequence[sql.Composed]) -> None:
    if statements:
        conn.execute(sql.SQL("; ").join(statements))


# -- removing --------------------------------------------------------------------------------


def remove(conn: Connection, relid: int, *, patience: Patience = PATIENT) -> bool:
    """Stop capturing a source that no stream table reads any more, and remove it from the catalog.

    If the table was dropped, only Millstream's own objects are removed. Return False and change
    nothing if a stream table reads the source after all, for example one that is just being
    created.
    """
    tables = captured_tables(conn, [relid])
    return under_lock(conn, tables, "ACCESS EXCLUSIVE", lambda: take_away(conn, relid), patience)


def captured_tables(conn: Connection, relids: Sequence[int]) -> list[Name]:
    """Return the tables with triggers of these sources that our role may lock.

    Tables that our role may no longer alter are locked by the DROP FUNCTION ... CASCADE that drops
    their triggers.
    """
    found = triggers(conn, relids)
    return relations.alterable(conn, [each.table.oid for relid in relids for each in found[relid]])


def drop_triggers(conn: Connection, relid: int, *, patience: Patience = PATIENT) -> bool:
    """Drop the triggers of a source that is captured from WAL; return False if it is not, or had
    none.
    """
    tables = list({each.table.oid: each.table for each in triggers(conn, [relid])[relid]}.values())
    return bool(tables) and under_lock(
        conn, tables, "ACCESS EXCLUSIVE", lambda: _drop_unneeded(conn, relid), patience
    )


def _drop_unneeded(conn: Connection, relid: int) -> bool:
    source = sources.get_for_update(conn, relid)
    if source is None or source.mode != "WAL":
        return False
    _execute(conn, _drops(triggers(conn, [relid])[relid]))
    _drop_functions(conn, relid, keep=set())
    return True


def take_away(conn: Connection, relid: int) -> bool:
    """Do what `remove` does, in the caller's transaction, which holds the lock on
    `captured_tables`.
    """
    source = sources.get(conn, relid)
    try:
        with conn.transaction():
            sources.remove(conn, relid)
    except errors.ForeignKeyViolation:
        return False
    if source is not None and source.uses_wal:
        slot.withdraw(conn, relations.names(conn, [relid, *source.partitions]))
    if source is not None:
        publication.restore_identities(conn, source.identities)
    _drop_functions(conn, relid, keep=set(), cascade=True)
    buffer_table.drop(conn, relid)
    return True
