"""Rows of millstream.stream_tables: find them by name, move them to a new frontier, remove them.

The frontier of a stream table is None until its first refresh has committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from psycopg import errors
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from millstream.algebra.table import quoted
from millstream.catalog.row_key import RowKey
from millstream.errors import NameTaken, NoSuchStreamTable, typed
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection, users_path
from millstream.postgres.sql_files import load

RefreshMode = Literal["AUTO", "DIFFERENTIAL", "FULL"]
Status = Literal["INITIALIZING", "ACTIVE", "SUSPENDED", "ERROR"]

_SQL = load("millstream.catalog", "stream_tables.sql")


@dataclass(frozen=True)
class StreamTable:
    """The catalog row of a stream table."""

    id: int
    schema_name: str
    name: str
    relid: int | None
    query: str
    canonical_query: str
    schedule: str
    refresh_mode: RefreshMode
    status: Status
    cdc_mode: str | None
    frontier: Snapshot | None
    data_timestamp: datetime | None
    last_refresh_at: datetime | None
    last_action: str | None
    last_reason: str | None
    consecutive_errors: int
    last_error: str | None
    created_at: datetime
    updated_at: datetime
    created_by: str
    row_key: RowKey | None = None
    """None where the table was created before keys were recorded."""
    planned_by: str | None = None
    """The version stamp of the planner that its blocks are of."""
    reads_clock: bool | None = None
    """True if its query reads the current time."""
    cut_at: datetime | None = None
    """When it was last refreshed; its data may be older, where it reads another stream table."""
    is_guarded: bool = False
    """Its guard was installed."""
    transient_errors: int = 0
    """Refreshes in a row that failed for a reason that passes by itself."""
    last_transient_error: str | None = None
    next_try_at: datetime | None = None
    """After a failed refresh: the scheduler does not try again before."""
    promised_age: timedelta | None = None
    """By a cron schedule: how old its rows may become, as the service has last worked it out."""
    no_data_refreshes: int = 0
    """Scheduled refreshes that found no change."""
    last_verified_at: datetime | None = None
    last_verified_ok: bool | None = None
    failed_tries: int = 0
    """Refreshes in a row that failed or were skipped, for whatever reason; decides `next_try_at`.
    """
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The session settings that the result of its query depends on; others are as in all our sessions."""
    assume_immutable: Sequence[str] = ()
    """The stable functions that its query calls, which its creator declares immutable."""
    content_frontier: str | None = None
    """A snapshot: what its rows certainly contain of the sources, to any depth."""

    @property
    def qualified(self) -> str:
        """Schema and name, quoted for use in SQL."""
        return quoted(self.schema_name, self.name)

    @property
    def typed(self) -> str:
        """Schema and name, as a user types them in a command."""
        return typed(self.schema_name, self.name)

    def __str__(self) -> str:
        return self.qualified


# -- finding ---------------------------------------------------------------------------------


def get(conn: Connection, id: int) -> StreamTable:
    """Return the stream table with that id. Raise NoSuchStreamTable if there is none."""
    found = _select(conn, "get", (id,))
    if not found:
        raise NoSuchStreamTable.named(str(id))
    return found[0]


def get_all(conn: Connection, ids: Sequence[int]) -> dict[int, StreamTable]:
    """Return the stream tables with these ids that exist, by id, with one query."""
    return {table.id: table for table in _select(conn, "get_all", (list(ids),))}


def named(conn: Connection, name: str) -> StreamTable:
    """Return the stream table of that name, read as PostgreSQL reads it: `totals`, `shop.totals`,
    `"Shop"."Totals"`.
    """
    schema, bare = _parts(conn, name)
    with users_path(conn):
        found = _select(conn, "named", {"schema_name": schema, "name": bare})
    if not found:
        raise NoSuchStreamTable.named(name)
    return found[0]


def every(conn: Connection) -> list[StreamTable]:
    """Return all stream tables, ordered by name."""
    return _select(conn, "every")


def staleness(conn: Connection) -> dict[int, timedelta]:
    """Return the age of the rows of each populated stream table, by id: zero while no change waits
    for it.
    """
    return dict(conn.execute(_SQL["staleness"]).fetchall())


def dependants(conn: Connection, id: int) -> list[StreamTable]:
    """Return the stream tables that read this one."""
    return _select(conn, "dependants", (id,))


# Parameters are of any type: psycopg adapts them.
def _select(conn: Connection, statement: str, parameters: Any = None) -> list[StreamTable]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return [_stream_table(row) for row in cursor.execute(_SQL[statement], parameters)]


def _stream_table(row: dict[str, Any]) -> StreamTable:
    frontier, key = row.pop("frontier"), row.pop("row_key")
    return StreamTable(
        **row,
        frontier=Snapshot.parse(frontier) if frontier else None,
        row_key=RowKey.of(key) if key else None,
    )


def _parts(conn: Connection, name: str) -> tuple[str | None, str]:
    """Split a name into schema, if given, and name; unquoted parts are folded to lower case."""
    try:
        # A savepoint, since a name that cannot be parsed must not abort the caller's transaction.
        with conn.transaction():
            parts: list[str] = conn.execute("SELECT parse_ident(%s)", (name,)).fetchall()[0][0]
    except (errors.InvalidParameterValue, errors.DataException) as error:
        raise NoSuchStreamTable.named(name) from error
    if len(parts) > 2:
        raise NoSuchStreamTable.named(name)
    return (parts[0] if len(parts) == 2 else None), parts[-1]


# -- changing --------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewStreamTable:
    """The catalog row of a stream table that is being created."""

    schema_name: str
    name: str
    query: str
    canonical_query: str
    schedule: str
    refresh_mode: RefreshMode = "AUTO"
    relid: int | None = None
    """The oid of its table; `attach` records it later if the table does not exist yet."""
    status: Status = "INITIALIZING"
    cdc_mode: str | None = None
    row_key: RowKey | None = None
    planned_by: str | None = None
    reads_clock: bool | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    assume_immutable: Sequence[str] = ()


def add(conn: Connection, new: NewStreamTable) -> StreamTable:
    """Record a new stream table."""
    key = Jsonb(new.row_key.as_dict()) if new.row_key else None
    row = {**vars(new), "row_key": key, "settings": Jsonb(dict(new.settings))}
    row["assume_immutable"] = list(new.assume_immutable)
    try:
        with conn.transaction():
            id = conn.execute(_SQL["add"], row).fetchall()[0][0]
    except errors.UniqueViolation as error:
        raise NameTaken.by(f"{new.schema_name}.{new.name}", "stream table") from error
    return get(conn, id)


def attach(conn: Connection, id: int, relid: int) -> None:
    """Record which table holds the rows."""
    conn.execute(_SQL["attach"], (relid, id))


@dataclass(frozen=True)
class Advance:
    """A move to a new frontier, and what the refresh did."""

    frontier: str
    cut_at: datetime
    action: str | None = None
    reason: str | None = None
    is_counted: bool = False
    """True if the scheduler found no change: the refresh is counted and has no history entry."""


def advance(conn: Connection, ids: Sequence[int], to: Advance) -> dict[int, datetime]:
    """Move stream tables to one frontier, in one statement; return the data timestamp of each.

    None of them may read another: a stream table must be moved after those that it reads.
    """
    row = {**vars(to), "ids": list(ids), "no_data": int(to.is_counted)}
    return dict(conn.execute(_SQL["advance"], row).fetchall())


def record_promises(conn: Connection, ages: Mapping[int, timedelta]) -> None:
    """Record how old the rows of these stream tables may become by their cron schedules, unless
    that is recorded already.
    """
    conn.execute(_SQL["record_promises"], (list(ages), list(ages.values())))


def set_planned(conn: Connection, id: int, *, planned_by: str, reads_clock: bool) -> None:
    """Record which planner planned its blocks, and whether its query reads the clock."""
    conn.execute(_SQL["set_planned"], (planned_by, reads_clock, id))


def set_text(conn: Connection, id: int, query: str, row_key: RowKey | None) -> None:
    """Record the text of the query with the current names of relations and columns."""
    conn.execute(
        _SQL["set_text"], (query, query, Jsonb(row_key.as_dict()) if row_key else None, id)
    )


@dataclass(frozen=True)
class RecordedDefinition:
    """What a stream table is computed by."""

    query: str
    canonical_query: str
    row_key: RowKey
    settings: Mapping[str, str]


def redefine(conn: Connection, id: int, new: RecordedDefinition) -> None:
    """Record another definition; the next refresh computes its rows in full."""
    row_key, settings = Jsonb(new.row_key.as_dict()), Jsonb(dict(new.settings))
    conn.execute(_SQL["redefine"], (new.query, new.canonical_query, row_key, settings, id))


def start_over(conn: Connection, id: int) -> None:
    """Remove its frontier, so that the next refresh reads everything."""
    conn.execute(_SQL["start_over"], (id,))


def record_failure(conn: Connection, id: int, error: BaseException) -> int:
    """Record an error; return how many there were in a row."""
    found = conn.execute(_SQL["record_failure"], (str(error), id)).fetchone()
    if found is None:
        raise NoSuchStreamTable.named(str(id))
    count: int = found[0]
    return count


def record_transient(conn: Connection, id: int, error: BaseException) -> None:
    """Record a transient error, which is counted separately and never suspends the stream table."""
    conn.execute(_SQL["record_transient"], (str(error), id))


def hold_off(conn: Connection, id: int, delay: timedelta) -> None:
    """Count a failed try, and do not let the scheduler try again before the delay has passed."""
    conn.execute(_SQL["hold_off"], (delay, id))


def try_now(conn: Connection, ids: Sequence[int]) -> None:
    """End the back-off of these stream tables: the cause of their errors may be gone."""
    conn.execute(_SQL["try_now"], (list(ids),))


def try_errors_now(conn: Connection) -> None:
    """End the back-off of the stream tables in status ERROR: the cause of their errors may be gone."""
    conn.execute(_SQL["try_errors_now"])


def set_status(conn: Connection, id: int, status: Status) -> None:
    """Change only the status."""
    conn.execute(_SQL["set_status"], (status, id))


def change(
    conn: Connection,
    id: int,
    *,
    schedule: str | None = None,
    refresh_mode: str | None = None,
    status: str | None = None,
    cdc_mode: str | None = None,
) -> None:
    """Change the given properties. A stream table that becomes ACTIVE again has no errors."""
    row = {
        "id": id,
        "schedule": schedule,
        "refresh_mode": refresh_mode,
        "status": status,
        "cdc_mode": cdc_mode,
    }
    conn.execute(_SQL["change"], row)


def remove(conn: Connection, id: int) -> None:
    """Delete its catalog rows: blocks, dependencies and history too. The caller drops its table."""
    conn.execute(_SQL["remove"], (id,))
