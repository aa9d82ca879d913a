"""Rows of millstream.sources: the tables that changes are captured from, and which stream tables
read them.

A source is identified by its oid: a table that was dropped and created again under the same name is
a different source. Its captured columns are recorded one by one, so that `drift` finds changes of
the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from millstream.algebra.table import quoted
from millstream.frontier.snapshot import Snapshot
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

Mode = Literal["TRIGGER", "TRANSITIONING", "WAL"]
Origin = Literal["t", "l"]
"""Where a row of a buffer came from: "t" a trigger, "l" WAL (logical decoding)."""

_SQL = load("millstream.catalog", "sources.sql")


@dataclass(frozen=True)
class CapturedColumn:
    """A column of a source as it was when its capture was set up."""

    attnum: int
    name: str
    type_oid: int
    """The declared type, which may be a domain."""
    type_name: str
    """The type of its column in the buffer: the base type of a domain, without a modifier,
    schema-qualified.
    """
    typmod: int = -1
    collation: int = 0
    generation: str | None = None
    """Digest of a generated column's expression. Its text would vary with the search_path."""


RETURNED = "Returned to triggers: "
"""Prefix of `Source.reason` after WAL capture failed, as opposed to a return that its readers asked
for.
"""
CHANGED = "Captured by triggers since its columns have changed: "
"""Prefix of `Source.reason` after a schema change. Nothing has failed."""


@dataclass(frozen=True)
class Cutover:
    """A change of the capture method: for transactions that `seen` sees, the rows of `origin` are
    read.
    """

    seen: Snapshot
    origin: Origin


@dataclass(frozen=True)
class Source:
    """A table that changes are captured from."""

    relid: int
    schema: str
    name: str
    mode: Mode
    columns: tuple[CapturedColumn, ...]
    partitions: tuple[int, ...] = ()
    """Oids of its partitions and inheritance children, to any depth."""
    reason: str | None = None
    """Why it is in this mode, if that is not obvious."""
    cutovers: tuple[Cutover, ...] = ()
    """The cutovers that some reader has not passed yet, oldest first."""
    published_at: int | None = None
    """A transaction id: WAL holds every change of all transactions with a higher id."""
    published_as: tuple[int, ...] = ()
    """Its entries in the publication."""
    identities: Mapping[int, str] = field(default_factory=dict)
    """By oid: the replica identity that a table had before Millstream set it to FULL."""
    mode_changed_at: datetime | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        attnums = [column.attnum for column in self.columns]
        if attnums != sorted(set(attnums)):
            raise ValueError(f"captured columns of {self.name} are not in order")

    @property
    def origin(self) -> Origin:
        """The origin of the rows to read after the last cutover."""
        return "l" if self.mode == "WAL" else "t"

    @property
    def uses_wal(self) -> bool:
        """True if some reader needs, or will need, changes of this source from WAL."""
        return self.mode != "TRIGGER" or bool(self.cutovers)

    def needs_wal(self, frontier: Snapshot) -> bool:
        """Return True if a reader at this frontier must read some later changes from WAL."""
        ahead = [cutover for cutover in self.cutovers if not frontier.reaches(cutover.seen)]
        return self.mode == "WAL" or any(cutover.origin == "l" for cutover in ahead)

    @property
    def qualified(self) -> str:
        """Schema and name, quoted for use in SQL."""
        return quoted(self.schema, self.name)

    def column(self, name: str) -> CapturedColumn | None:
        """Return the captured column of that name, or None."""
        return next((column for column in self.columns if column.name == name), None)


# -- rows ------------------------------------------------------------------------------------


def get(conn: Connection, relid: int) -> Source | None:
    """Return the source with that oid, or None."""
    return next(iter(_select(conn, "get", (relid,))), None)


def get_for_update(conn: Connection, relid: int) -> Source | None:
    """Return the source with that oid and lock its row until the transaction ends."""
    return next(iter(_select(conn, "get_for_update", (relid,))), None)


def every(conn: Connection) -> list[Source]:
    """Return all sources, ordered by oid."""
    return _select(conn, "every")


def read_by(conn: Connection, stream_table_id: int) -> list[Source]:
    """Return the sources of a stream table."""
    return read_by_each(conn, [stream_table_id])[stream_table_id]


def read_by_each(conn: Connection, stream_table_ids: Sequence[int]) -> dict[int, list[Source]]:
    """Return the sources of each of these stream tables, with one query."""
    by_reader: dict[int, list[Source]] = {id: [] for id in stream_table_ids}
    with conn.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(_SQL["read_by_each"], (list(stream_table_ids),)):
            by_reader[row.pop("stream_table_id")].append(_source(row))
    return by_reader


def unread(conn: Connection) -> list[Source]:
    """Return the sources that no stream table reads any more."""
    return _select(conn, "unread")


def read_only_by(conn: Connection, stream_table_ids: Sequence[int]) -> list[int]:
    """Return the sources that no stream table reads, except possibly these."""
    return [relid for (relid,) in conn.execute(_SQL["read_only_by"], (list(stream_table_ids),))]


def put(conn: Connection, source: Source) -> None:
    """Insert or update the row of a source."""
    row = {
        "relid": source.relid,
        "schema": source.schema,
        "name": source.name,
        "mode": source.mode,
        "columns": Jsonb([asdict(column) for column in source.columns]),
        "partitions": list(source.partitions),
        "reason": source.reason,
        "cutovers": Jsonb([[str(cutover.seen), cutover.origin] for cutover in source.cutovers]),
        "published_at": str(source.published_at) if source.published_at else None,
        "published_as": list(source.published_as),
        "identities": Jsonb({str(oid): identity for oid, identity in source.identities.items()}),
    }
    conn.execute(_SQL["put"], row)


def set_reason(conn: Connection, relid: int, reason: str) -> None:
    """Record why a source is captured the way it is."""
    conn.execute(_SQL["set_reason"], (reason, relid))


def reserve(conn: Connection, relid: int, schema: str, name: str) -> None:
    """Insert a source without captured columns, for a stream table to depend on.

    Do nothing if the source exists.
    """
    conn.execute(_SQL["reserve"], (relid, schema, name))


def follow_names(conn: Connection, relids: Sequence[int]) -> None:
    """Record the current names of these sources."""
    conn.execute(_SQL["follow_names"], (list(relids),))


def remove(conn: Connection, relid: int) -> None:
    """Delete a source. Raise if a stream table still depends on it."""
    conn.execute(_SQL["remove"], (relid,))


# Parameters are of any type: psycopg adapts them.
def _select(conn: Connection, statement: str, parameters: Any = None) -> list[Source]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return [_source(row) for row in cursor.execute(_SQL[statement], parameters)]


def _source(row: Mapping[str, Any]) -> Source:
    return Source(
        relid=row["relid"],
        schema=row["schema_name"],
        name=row["name"],
        mode=row["cdc_mode"],
        columns=tuple(CapturedColumn(**column) for column in row["columns"]),
        partitions=tuple(row["partitions"]),
        reason=row["reason"],
        cutovers=tuple(Cutover(Snapshot.parse(seen), origin) for seen, origin in row["cutovers"]),
        published_at=row["published_at"],
        published_as=tuple(row["published_as"]),
        identities={int(oid): identity for oid, identity in row["identities"].items()},
        mode_changed_at=row["mode_changed_at"],
    )


# -- readers ---------------------------------------------------------------------------------


def add_dependency(
    conn: Connection, stream_table_id: int, relid: int, columns: Sequence[str]
) -> None:
    """Record that a stream table reads these columns of a source.

    Commit this before the stream table's first cut: `prune` then keeps the changes that it will
    need.
    """
    conn.execute(_SQL["add_dependency"], (stream_table_id, relid, sorted(set(columns))))


def widen_dependency(
    conn: Connection, stream_table_id: int, relid: int, columns: Sequence[str]
) -> None:
    """Record that a stream table reads these columns of a source, in addition to those recorded."""
    conn.execute(_SQL["widen_dependency"], (stream_table_id, relid, sorted(set(columns))))


def remove_other_dependencies(
    conn: Connection, stream_table_id: int, relids: Sequence[int]
) -> None:
    """Delete the dependencies of a stream table on sources that are not among these."""
    conn.execute(_SQL["remove_other_dependencies"], (stream_table_id, list(relids)))


def remove_dependencies_on_dropped(conn: Connection) -> None:
    """Delete the dependencies on tables that were dropped: a table that is created again is another
    source.
    """
    conn.execute(_SQL["remove_dependencies_on_dropped"])


def needed_columns(conn: Connection, relid: int) -> list[str]:
    """Return the columns of a source that at least one stream table reads."""
    return [name for (name,) in conn.execute(_SQL["needed_columns"], (relid,))]


def consumers(conn: Connection, relid: int) -> list[Snapshot | None]:
    """Return the frontiers of the stream tables that read a source; None for one that is not
    populated yet.
    """
    rows = conn.execute(_SQL["consumers"], (relid,))
    return [Snapshot.parse(frontier) if frontier else None for (frontier,) in rows]


@dataclass(frozen=True)
class WantedCapture:
    """How the readers of a source want it captured."""

    modes: frozenset[str | None]
    """The `cdc_mode` of each reader; None means the general setting."""
    is_read: bool
    """True if every reader has been filled."""
    is_stream_table: bool
    """True if the source is itself a stream table, which only refreshes write."""


def wanted_captures(conn: Connection) -> dict[int, WantedCapture]:
    """Return how each source that has readers should be captured, by its oid."""
    rows = conn.execute(_SQL["wanted_captures"])
    return {
        relid: WantedCapture(frozenset(modes), filled, ours) for relid, modes, filled, ours in rows
    }


# -- drift -----------------------------------------------------------------------------------


def drift(conn: Connection, relids: Sequence[int] | None = None) -> dict[int, str]:
    """Return the sources that no longer match their capture, each with the first difference."""
    return {
        relid: next(iter(by_column.values()))
        for relid, by_column in drift_by_column(conn, relids).items()
    }


def drift_by_column(
    conn: Connection, relids: Sequence[int] | None = None
) -> dict[int, dict[str, str]]:
    """Return all differences of each source by column name, so that readers of other columns can
    ignore them.

    The key "" stands for the table itself. The function needs two queries for all sources; inside a
    cut it returns the state at the cut. The caller sets up the capture again, which writes a mark
    into the buffer, and each reader then reinitialises.
    """
    wanted = [source for source in every(conn) if relids is None or source.relid in relids]
    partitions = relations.partitions(conn, [source.relid for source in wanted])
    shapes = _shapes(conn, wanted)
    by_source = {
        source.relid: _differences(source, shapes[source.relid], partitions[source.relid])
        for source in wanted
    }
    return {relid: differences for relid, differences in by_source.items() if differences}


PARTITIONS_CHANGED = "A partition or child was attached or detached."
_RENAMED = "was renamed to"


def only_renamed(differences: Mapping[str, str]) -> bool:
    """Return True if columns have other names and nothing else has changed, as worded by
    `drift_by_column`.
    """
    return all(_RENAMED in difference for difference in differences.values())


# By attnum: name, type, modifier, collation, generation.
_Shape = dict[int, tuple[Any, ...]]


def _shapes(conn: Connection, wanted: Sequence[Source]) -> dict[int, _Shape | None]:
    """Return the current columns of each source; None for a table that no longer exists."""
    shapes: dict[int, _Shape | None] = {}
    for relid, exists, attnum, *facts in conn.execute(
        _SQL["shapes"], ([source.relid for source in wanted],)
    ):
        shape = shapes.setdefault(relid, {} if exists else None)
        if shape is not None and facts[0] is not None:
            shape[attnum] = tuple(facts)
    return shapes


def _differences(
    source: Source, shape: _Shape | None, partitions: tuple[int, ...]
) -> dict[str, str]:
    if shape is None:
        return {"": "The table was dropped."}
    differences = {"": PARTITIONS_CHANGED} if partitions != source.partitions else {}
    for column in source.columns:
        if difference := _difference(column, shape):
            differences[column.name] = difference
    return differences


def _difference(column: CapturedColumn, shape: _Shape) -> str:
    """Describe how a column differs from its record; return "" if it does not."""
    now = shape.get(column.attnum)
    recorded = (column.name, column.type_oid, column.typmod, column.collation, column.generation)
    if now is None and recorded in shape.values():
        return f"Column {quoted(column.name)} was dropped and created again."
    if now is None:
        return f"Column {quoted(column.name)} was dropped."
    if now[1:] == recorded[1:] and now[0] != column.name:
        return f"Column {quoted(column.name)} {_RENAMED} {quoted(now[0])}."
    if now != recorded:
        return f"Column {quoted(column.name)} has another type, collation or expression."
    return ""
