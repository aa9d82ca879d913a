"""The verb create: from a query to a populated stream table. An error leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import get_args

import psycopg
from psycopg import sql

from millstream.algebra.block import Key
from millstream.algebra.table import quoted
from millstream.capture.transition import transitions
from millstream.capture.trigger import triggers
from millstream.catalog import sources, stream_tables
from millstream.catalog.definitions import definition_digests, query_names, rights
from millstream.catalog.installation import roles
from millstream.catalog.installation.install import SCHEMAS
from millstream.catalog.sources import Source
from millstream.catalog.stream_tables import RefreshMode, StreamTable
from millstream.catalog.target import targets, write_guard
from millstream.compiler.server.plan_query import QueryPlan, version_stamp
from millstream.errors import BadSetting, MillstreamError, NameTaken, NoRights
from millstream.observe import log
from millstream.observe.failpoint import failpoint
from millstream.postgres import relations
from millstream.postgres.composed import Printed
from millstream.postgres.connection import users_path
from millstream.postgres.relations import Name
from millstream.refresh.report import RefreshReport
from millstream.scheduler import dependencies
from millstream.scheduler.cadence import Cadence
from millstream.service import block_tables
from millstream.service.app import App
from millstream.service.define.drop import drop_table
from millstream.service.define.session import OWN, AskingSession, Pinned, assumed, checked, plan
from millstream.service.refresh import refresh
from millstream.service.verb import verb
from millstream.settings import CDC_MODES
from millstream.store import target
from millstream.store.names import BlockNames

# Schemas of the server and of Millstream; those that begin with pg_ are the server's too.
RESERVED = ("information_schema", *SCHEMAS)


@verb
def create(
    app: App,
    name: str,
    query: str,
    *,
    schedule: str = "1m",
    refresh_mode: str = "AUTO",
    initialize: bool = True,
    cdc_mode: str | None = None,
    owner: str | None = None,
    settings: object = None,
    assume_immutable: object = None,
    session: AskingSession = OWN,
) -> RefreshReport | None:
    """Create a stream table for a role, by default the session's own, and populate it.

    `settings` are session settings that its query is evaluated with; others are those of the
    session that asks.
    """
    cadence = Cadence.parse(schedule, shortest=app.settings.min_schedule)
    if refresh_mode not in get_args(RefreshMode):
        raise BadSetting.of("refresh_mode", refresh_mode, "AUTO, DIFFERENTIAL or FULL")
    if cdc_mode not in (None, *CDC_MODES):
        raise BadSetting.of("cdc_mode", cdc_mode, "trigger, auto or wal")
    schema, bare = _name(app, name)
    app.progress("planning the query", None)
    owner = rights.owner_for(app.conn, owner)
    functions = assumed(app, session, assume_immutable)
    pinned = Pinned(checked(app, session, settings), functions)
    planned = with_key(app, plan(app, query, owner, session, pinned))
    if (cdc_mode or app.settings.cdc_mode) == "wal":
        transitions.require(app, as_sources(app, planned))
    asked = _Definition(schema, bare, str(cadence), refresh_mode, cdc_mode, owner, functions)
    # It is locked until it is populated, so that no other process refreshes it first.
    with ExitStack() as locked:
        table = _recorded(app, locked, asked, planned)
        planned = (
            planned.stored_in(definition_digests.digests_of_target(app.conn, table.relid))
            if table.relid
            else planned
        )
        app.know(table, planned)
        with app.conn.transaction():
            app.hold_epoch()
            roles.grant(app.conn)
        failpoint("create_recorded")
        try:
            for source, columns in planned.sources().values():
                app.progress(f"capturing changes of {source.name}", None)
                triggers.install(app.conn, source, columns)
                failpoint("create_captured")
            notices = _stay_on_triggers(app, planned, cdc_mode)
            if not initialize:
                return None
            app.progress("filling the stream table", None)
            report = refresh(app, table.qualified, initiated_by="INITIAL")
            return replace(report, notices=(*notices, *_policies(app, table, planned)))
        except BaseException:
            _undo(app, table)
            raise


def _stay_on_triggers(app: App, planned: QueryPlan, cdc_mode: str | None) -> list[str]:
    """Return the sources that stay on triggers, each with the statement that would allow capture
    from WAL.
    """
    if (cdc_mode or app.settings.cdc_mode) == "trigger":
        return []
    known = [sources.get(app.conn, source.relid) for source in as_sources(app, planned)]
    return transitions.explain(
        app, [source for source in known if source and source.mode == "TRIGGER"]
    )


def as_sources(app: App, planned: QueryPlan) -> list[Source]:
    """Return the tables that it reads, except stream tables, as sources without capture."""
    own = {one.relid for one in stream_tables.every(app.conn)}
    tables = [table for table, _ in planned.sources().values() if table.oid not in own]
    partitions = relations.partitions(app.conn, [table.oid for table in tables])
    return [
        Source(one.oid, one.schema, one.name, "TRIGGER", (), partitions[one.oid]) for one in tables
    ]


def with_key(app: App, planned: QueryPlan) -> QueryPlan:
    """Use a row id as key if the `=` of the plan's key is an operator of an extension."""
    key = planned.block.key
    types = [
        output.column.type.oid
        for output in planned.block.outputs
        if output.column.name in key.columns
    ]
    return planned.keyed(Key("row_id")) if relations.from_outside(app.conn, types) else planned


def _undo(app: App, table: StreamTable) -> None:
    """Remove everything that was created, also after Ctrl-C.

    If the server cannot be reached, use `drop` later.
    """
    try:
        app.reach()
        drop_table(app, table)
    except (MillstreamError, psycopg.Error) as error:
        log.warning("left half-made", table=table.name, reason=str(error))


def _name(app: App, name: str) -> tuple[str, str]:
    try:
        with users_path(app.conn):
            query = "SELECT pg_catalog.parse_ident(%s), pg_catalog.current_schema()"
            row = app.conn.execute(query, (name,)).fetchone()
    except psycopg.Error as error:
        raise BadSetting.of("name", name, "a table name, with or without a schema") from error
    assert row is not None
    parts = row[0]
    if not 1 <= len(parts) <= 2 or any(len(part.encode()) > 63 for part in parts):
        raise BadSetting.of(
            "name", name, "a table name of at most 63 bytes, with or without a schema"
        )
    schema = parts[0] if len(parts) == 2 else row[1]
    if schema is None:
        raise BadSetting.of("name", name, "a name with a schema: there is none on the search_path")
    if schema.startswith("pg_") or schema in RESERVED:
        raise BadSetting.of(
            "name",
            name,
            f'a name in a schema of your own: "{schema}" belongs to the server or to Millstream',
        )
    _check_free(app, schema, parts[-1])
    return schema, parts[-1]


def _check_free(app: App, schema: str, name: str) -> None:
    row = app.conn.execute(
        "SELECT n.oid IS NOT NULL, has_schema_privilege(n.oid, 'CREATE'), "
        "(SELECT relkind::text FROM pg_class WHERE relnamespace = n.oid AND relname = %s) "
        "FROM (VALUES (1)) AS one LEFT JOIN pg_namespace AS n ON n.nspname = %s",
        (name, schema),
    ).fetchone()
    assert row is not None
    exists, allowed, kind = row
    if not exists:
        raise BadSetting.of("name", f"{schema}.{name}", "a schema that exists")
    if kind is not None:
        kinds = {
            "r": "table",
            "p": "partitioned table",
            "v": "view",
            "m": "materialized view",
            "i": "index",
            "S": "sequence",
        }
        raise NameTaken.by(f"{schema}.{name}", kinds.get(kind, "relation"))
    if not allowed:
        role = app.conn.info.user
        raise NoRights.to(
            f"create tables in schema {schema}",
            role=role,
            grant=f"GRANT CREATE ON SCHEMA {quoted(schema)} TO {quoted(role)};",
        )


def _policies(app: App, table: StreamTable, planned: QueryPlan) -> tuple[str, ...]:
    """Log, for each source with row-level security, that its policies do not apply to the stream
    table.
    """
    policies = rights.with_policies(app.conn, list(planned.sources()))
    for name in policies.values():
        log.warning("row-level security is bypassed", table=table.name, source=name)
    return tuple(rights.note(name) for name in policies.values())


@dataclass(frozen=True)
class _Definition:
    """The checked definition of a new stream table."""

    schema: str
    name: str
    schedule: str
    refresh_mode: str
    cdc_mode: str | None
    owner: str
    assume_immutable: Sequence[str]


def _recorded(app: App, locked: ExitStack, asked: _Definition, planned: QueryPlan) -> StreamTable:
    """Create catalog rows, table and state in one transaction; lock the stream table before the
    commit.
    """
    with app.conn.transaction():
        app.hold_epoch()
        new = stream_tables.NewStreamTable(
            asked.schema,
            asked.name,
            planned.query,
            planned.canonical.text,
            asked.schedule,
            asked.refresh_mode,  # type: ignore[arg-type]  # checked above
            cdc_mode=asked.cdc_mode,
            row_key=planned.row_key(),
            planned_by=version_stamp(),
            reads_clock=planned.reads_clock,
            settings=planned.settings,
            assume_immutable=asked.assume_immutable,
        )
        table = stream_tables.add(app.conn, new)
        locked.enter_context(app.mutex.stream_table(table.id, asked.name))
        _make_tables(app, table, planned, asked.owner)
        for relid, (source, columns) in planned.sources().items():
            sources.reserve(app.conn, relid, source.schema, source.name)
            sources.add_dependency(app.conn, table.id, relid, columns)
        dependencies.refuse_cycle_of_new(app.conn, table.id, asked.name, planned.upstreams)
        dependencies.record(app.conn, table.id, planned.upstreams)
        query_names.put(app.conn, table.id, planned.names)
    return stream_tables.get(app.conn, table.id)


def _make_tables(app: App, table: StreamTable, planned: QueryPlan, owner: str) -> None:
    names = BlockNames(table.id, table.schema_name, table.name)
    for statement in target.create_sql(planned.block, names, Printed(planned.canonical.text)):
        app.conn.execute(statement)
    relid = block_tables.relation_oid(app.conn, names.target)
    stream_tables.attach(app.conn, table.id, relid)
    targets.mark(app.conn, table.id)
    if not app.settings.allow_direct_writes:
        write_guard.put(app.conn, table.id, Name(relid, table.schema_name, table.name))
    _give(app, table, owner)
    block_tables.create(app.conn, table, planned)


def _give(app: App, table: StreamTable, owner: str) -> None:
    """Give the stream table's table to its owner."""
    alter = sql.SQL("ALTER TABLE {} OWNER TO {}")
    try:
        app.conn.execute(
            alter.format(sql.Identifier(table.schema_name, table.name), sql.Identifier(owner))
        )
    except psycopg.errors.InsufficientPrivilege as error:
        raise NoRights.to(
            f"own a table in schema {table.schema_name}",
            role=owner,
            grant=f"GRANT CREATE ON SCHEMA {quoted(table.schema_name)} TO {quoted(owner)};",
            reason=error.diag.message_primary or "",
        ) from error
