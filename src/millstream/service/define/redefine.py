"""Give a stream table another query.

    plan       as for a new stream table: rights of its owner, refusals, cycles; nothing is changed
    capture    additional columns and sources of the new query; those of the former one are still captured
    one cut    catalog, state, table and rows in one transaction: readers see the former rows, then the new ones
    release    sources that are not read any more

The table keeps its oid, owner, rights, comments and triggers, and the columns that both queries
have; others are dropped, or added at its end. Its rows are changed by the difference while its key
is the same; under another key all are replaced. If columns or key change, readers of the table wait
for the end of the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import psycopg
from psycopg import sql

from millstream.capture.transition import transitions
from millstream.capture.trigger import triggers
from millstream.catalog import sources, stream_tables, upstreams
from millstream.catalog.definitions import definition_digests, query_names, rights
from millstream.catalog.stream_tables import StreamTable
from millstream.catalog.target import target_shape, targets
from millstream.catalog.target.target_shape import TypedColumn
from millstream.compiler.refusal import accepted
from millstream.compiler.server import queries
from millstream.compiler.server.plan_query import QueryPlan, version_stamp
from millstream.errors import Conflict, LockNotHad, MillstreamError, TargetMoved
from millstream.observe.failpoint import failpoint
from millstream.postgres import relations
from millstream.postgres.composed import Printed, listed
from millstream.postgres.relations import Name
from millstream.postgres.table_locks import Patience
from millstream.refresh.job import Gap, Job
from millstream.refresh.report import RefreshReport
from millstream.scheduler import dependencies
from millstream.service import block_tables
from millstream.service.app import App
from millstream.service.define.create import as_sources, with_key
from millstream.service.define.drop import WAITING
from millstream.service.define.session import OWN, AskingSession, Pinned, plan
from millstream.service.follow_types import convert, empty, naming_obstacles
from millstream.store import target
from millstream.store.names import ROW_ID, BlockNames

HASTY = Patience(seconds=2.0)
# Tries, since sources can change between the plan and the cut.
TRIES = 3


def redefine(
    app: App,
    table: StreamTable,
    query: str | None,
    settings: Mapping[str, str],
    session: AskingSession = OWN,
) -> RefreshReport | None:
    """Give a stream table another query, or other session settings, and fill it; None if the
    definition means the same as the former one.

    Settings that are not given stay as they are recorded; a query that is not given is read again
    with the constants that it had.
    """
    owner = rights.owners(app.conn, [table.relid or 0]).get(table.relid or 0)
    app.progress("planning the query", None)
    text = table.canonical_query if query is None else query
    pinned = Pinned({**table.settings, **settings}, table.assume_immutable)
    planned = with_key(app, plan(app, text, owner, session, pinned))
    if query is None:
        planned = replace(planned, query=table.query)
    if (planned.canonical.text, planned.settings) == (table.canonical_query, table.settings):
        return None
    if (table.cdc_mode or app.settings.cdc_mode) == "wal":
        transitions.require(app, as_sources(app, planned))
    dependencies.refuse_cycle(app.conn, table.id, planned.upstreams)
    with app.mutex.stream_table(table.id, table.name, WAITING):
        name = targets.ours(app.conn, table.id, table.name)
        if name is None:
            raise TargetMoved.dropped(table.name)
        try:
            _capture(app, table, planned)
            report = _in_one_cut(app, _Redefinition(table, name, planned))
            failpoint("redefine_filled")
        except BaseException:
            _return_to_former(app, table)
            raise
        app.forget(table.id)
        _narrow(app, table, planned)
    return report


def _capture(app: App, table: StreamTable, planned: QueryPlan) -> None:
    """Capture the additional sources of the new query; committed before the cut, so that no change
    is pruned or missed.

    Its upstreams are recorded together with those of the former query, which counts until the
    commit. Two sessions that each close one half of a cycle see each other's.
    """
    with app.conn.transaction():
        app.hold_epoch()
        former = [one for one in upstreams.of(app.conn, table.id) if one.id not in _ids(planned)]
        dependencies.record(app.conn, table.id, [*former, *planned.upstreams])
    for relid, (source, columns) in planned.sources().items():
        app.progress(f"capturing changes of {source.name}", None)
        with app.conn.transaction():
            app.hold_epoch()
            sources.reserve(app.conn, relid, source.schema, source.name)
            sources.widen_dependency(app.conn, table.id, relid, columns)
        triggers.install(app.conn, source, columns)
        failpoint("redefine_captured")


def _ids(planned: QueryPlan) -> set[int]:
    return {one.id for one in planned.upstreams}


@dataclass(frozen=True)
class _Redefinition:
    """A stream table, its own table, and the plan of its new query."""

    table: StreamTable
    name: Name
    planned: QueryPlan


def _in_one_cut(app: App, change: _Redefinition) -> RefreshReport:
    app.progress("filling the stream table", None)
    planned = change.planned
    job = Job(
        change.table, planned.blocks, upstreams=frozenset(one.id for one in planned.upstreams)
    )
    refresher = replace(app.refresher({}), prepare=lambda job: _prepared(app, change, job))
    for _ in range(TRIES):
        outcome = refresher.refresh([job], "MANUAL")[0]
        if isinstance(outcome, RefreshReport):
            return outcome
        if isinstance(outcome, Gap):
            _mend(app, outcome.relids)
        elif isinstance(outcome, MillstreamError) and not isinstance(outcome, Conflict):
            raise outcome
    raise Conflict.on(change.table.name, "Its sources keep changing.")


def _mend(app: App, relids: Sequence[int]) -> None:
    for relid in relids:
        triggers.install(
            app.conn, relations.table(app.conn, relid), sources.needed_columns(app.conn, relid)
        )


def _prepared(app: App, change: _Redefinition, job: Job) -> Job:
    """Change catalog, state and table to the new query, in the transaction of the cut; return the
    job to carry out.
    """
    conn, table, planned = app.conn, change.table, change.planned
    block_tables.drop(conn, table)
    _reshape(app, change)
    row_key = planned.row_key()
    definition = stream_tables.RecordedDefinition(
        planned.query, planned.canonical.text, row_key, planned.settings
    )
    stream_tables.redefine(conn, table.id, definition)
    stream_tables.set_planned(
        conn, table.id, planned_by=version_stamp(), reads_clock=planned.reads_clock
    )
    query_names.put(conn, table.id, planned.names)
    if {one.id for one in upstreams.of(conn, table.id)} != _ids(planned):
        upstreams.put(conn, table.id, planned.upstreams)
    block_tables.create(conn, table, planned)
    target_shape.check(conn, table.id, table.name, change.name.oid, planned.canonical.columns)
    digests = planned.digests | definition_digests.digests_of_target(conn, change.name.oid)
    definition_digests.record(conn, table.id, digests)
    digests |= {("target", change.name.oid): row_key.indexed()}
    failpoint("redefine_altered")
    return replace(
        job,
        table=stream_tables.get(conn, table.id),
        digests=digests,
        recompute_reason="QUERY_CHANGED",
    )


# -- the table -------------------------------------------------------------------------------


def _reshape(app: App, change: _Redefinition) -> None:
    """Give the table the columns and the key of the new query."""
    conn, relid, text = app.conn, change.name.oid, change.planned.canonical.text
    with queries.rolled_back(conn):
        view = queries.temporary_view(conn, text)
        wanted, retyped = target_shape.wanted(conn, view), target_shape.retyped(conn, view, relid)
    stored = _own_columns(app, change.table, relid)
    names = [column.name for column in change.planned.canonical.columns]
    dropped, added = _in_order(stored, names)
    retyped = [one for one in retyped if one.name not in dropped]
    with naming_obstacles(change.table, change.name):
        if not _has_key(change, {*dropped, *added, *(one.name for one in retyped)}):
            _remove_key(app, change)
            dropped = [*dropped, *_row_ids(app, relid)]
        drop = sql.SQL("DROP COLUMN {}")
        _run(app, change.name, [drop.format(sql.Identifier(name)) for name in dropped])
        if retyped:
            convert(conn, change.table, change.name, retyped)
        _run(app, change.name, [_addition(one) for one in wanted if one.name in added])
    if not target_shape.key_drops(conn, relid):
        _make_key(app, change)
    triggers.follow_columns(conn, change.name)


def _in_order(stored: Sequence[str], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns to drop and to add, so that the table has the wanted ones in their order.

    >>> _in_order(["a", "b", "c"], ["a", "c", "d"])
    (['b'], ['d'])
    >>> _in_order(["a", "b"], ["a", "d", "b"])
    (['b'], ['d', 'b'])
    """
    common = [column for column in stored if column in wanted]
    kept = next(
        (n for n, pair in enumerate(zip(common, wanted, strict=False)) if pair[0] != pair[1]),
        len(common),
    )
    return [column for column in stored if column not in common[:kept]], list(wanted[kept:])


def _own_columns(app: App, table: StreamTable, relid: int) -> list[str]:
    """Return the columns of the table that belong to the former query; all, if that query is no
    longer valid.
    """
    stored = [column.name for column in relations.columns(app.conn, relid) if column.name != ROW_ID]
    try:
        former = {
            column.name for column in accepted(queries.columns_of(app.conn, table.canonical_query))
        }
    except MillstreamError:
        return stored
    # Columns that its owner has added are not touched.
    return [name for name in stored if name in former]


def _has_key(change: _Redefinition, touched: set[str]) -> bool:
    """Return True if the key of the rows is the same as before."""
    former, key = change.table.row_key, change.planned.block.key
    return former is not None and former.key == key and touched.isdisjoint(key.columns)


def _remove_key(app: App, change: _Redefinition) -> None:
    """Drop the key, and delete the rows, which the new key may not distinguish."""
    empty(app.conn, change.name)
    for statement in target_shape.key_drops(app.conn, change.name.oid):
        app.conn.execute(statement)


def _make_key(app: App, change: _Redefinition) -> None:
    block = change.planned.block
    names = BlockNames(change.table.id, change.name.schema, change.name.name)
    if block.key.kind == "row_id":
        add = sql.SQL("ADD COLUMN {} bytea NOT NULL PRIMARY KEY")
        _run(app, change.name, [add.format(sql.Identifier(ROW_ID))])
    else:
        app.conn.execute(target.index_sql(block, names))
    targets.mark(app.conn, change.table.id)


def _row_ids(app: App, relid: int) -> list[str]:
    there = {column.name for column in relations.columns(app.conn, relid)}
    return [ROW_ID] if ROW_ID in there else []


def _addition(column: TypedColumn) -> sql.Composed:
    add = sql.SQL("ADD COLUMN {name} {type}{collate}")
    return add.format(name=column.identifier, type=Printed(column.type), collate=column.collate)


def _run(app: App, name: Name, clauses: Sequence[sql.Composable]) -> None:
    if clauses:
        alter = sql.SQL("ALTER TABLE {} {}")
        app.conn.execute(alter.format(name.identifier, listed(clauses)))


# -- what is not read any more -----------------------------------------------------------------


def _return_to_former(app: App, table: StreamTable) -> None:
    """Capture only what the former query reads; what fails here is done by the next refresh."""
    app.forget(table.id)
    # Raise the original error, not one that follows from it.
    with suppress(MillstreamError, psycopg.Error):
        app.reach()
        _narrow(app, table, app.plan(stream_tables.get(app.conn, table.id)))


def _narrow(app: App, table: StreamTable, planned: QueryPlan) -> None:
    read = planned.sources()
    with app.conn.transaction():
        app.hold_epoch()
        for relid, (_, columns) in read.items():
            sources.add_dependency(app.conn, table.id, relid, columns)
        sources.remove_other_dependencies(app.conn, table.id, list(read))
        dependencies.record(app.conn, table.id, planned.upstreams)
    failpoint("redefine_narrowed")
    for source in sources.unread(app.conn):
        # The source is in use: the next refresh removes them.
        with suppress(LockNotHad):
            triggers.remove(app.conn, source.relid, patience=HASTY)
