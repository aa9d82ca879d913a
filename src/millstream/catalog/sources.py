"""The catalog's rows of sources: the tables that changes are captured from, and who reads them.

A source is known by its oid: a table dropped and made again under the same name is another one. What is
captured of it is recorded column by column, so that `drift` can tell when the table has since changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from psycopg.types.json import Jsonb

from millstream.algebra.table import quoted
from millstream.frontier.snapshot import Snapshot
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

Mode = Literal["TRIGGER", "TRANSITIONING", "WAL"]
Origin = Literal["t", "l"]
"""Who wrote a row of a buffer: a trigger, or the log."""

_SQL = load("millstream.catalog", "sources.sql")


@dataclass(frozen=True)
class CapturedColumn:
    """A column of a source as it was when its capture was set up."""

    attnum: int
    name: str
    type_oid: int
    """The declared type, a domain included."""
    type_name: str
    """The type of its column in the buffer: underneath domains, without a modifier, qualified."""
    typmod: int = -1
    collation: int = 0
    generation: str | None = None
    """Of a generated column: a digest of how it is computed; the text would vary with the search_path."""


# How the reason begins where a source came back from the log, and not by the wish of its readers.
RETURNED = "Returned to triggers: "


@dataclass(frozen=True)
class Cutover:
    """A hand-over: of the transactions that this snapshot sees, the rows of this origin count."""

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
    members: tuple[int, ...] = ()
    reason: str | None = None
    """Why it is in this mode, where that needs saying."""
    turns: tuple[Cutover, ...] = ()
    """The hand-overs that some reader has not passed yet, in their order."""
    published_at: int | None = None
    """A transaction's id: the log holds all of every transaction with a higher one."""
    published_as: tuple[int, ...] = ()
    """Its entries in the publication."""
    identities: Mapping[int, str] = field(default_factory=dict)
    """The replica identities that its tables had before we set them."""
    turned_at: datetime | None = field(default=None, compare=False)
    """When its mode last changed."""

    def __post_init__(self) -> None:
        attnums = [column.attnum for column in self.columns]
        if attnums != sorted(set(attnums)):
            raise ValueError(f"captured columns of {self.name} are not in order")

    @property
    def origin(self) -> Origin:
        """Whose rows count after the last hand-over."""
        return "l" if self.mode == "WAL" else "t"

    @property
    def is_logged(self) -> bool:
        """Does anybody need, or will anybody need, what the log tells of it?"""
        return self.mode != "TRIGGER" or bool(self.turns)

    def needs_log(self, frontier: Snapshot) -> bool:
        """Is any of what came after a frontier told by the log?"""
        unpassed = [turn for turn in self.turns if not frontier.reaches(turn.seen)]
        return self.mode == "WAL" or any(turn.origin == "l" for turn in unpassed)

    @property
    def qualified(self) -> str:
        """Schema and name, quoted for use in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def column(self, name: str) -> CapturedColumn | None:
        """The captured column of that name, if it is captured."""
        return next((column for column in self.columns if column.name == name), None)


# -- rows ------------------------------------------------------------------------------------


def get(conn: Connection, relid: int) -> Source | None:
    """The source of that oid, if changes are captured from it."""
    row = conn.execute(_SQL["get"], (relid,)).fetchone()
    return _source(row) if row else None


def hold(conn: Connection, relid: int) -> Source | None:
    """The same, kept from others until the transaction ends."""
    row = conn.execute(_SQL["hold"], (relid,)).fetchone()
    return _source(row) if row else None


def every(conn: Connection) -> list[Source]:
    """All of them, in order of oid."""
    return [_source(row) for row in conn.execute(_SQL["every"])]


def read_by(conn: Connection, stream_table_id: int) -> list[Source]:
    """The sources of one stream table."""
    return [_source(row) for row in conn.execute(_SQL["read_by"], (stream_table_id,))]


def read_by_each(conn: Connection, stream_table_ids: Sequence[int]) -> dict[int, list[Source]]:
    """The sources of each of these stream tables, in one query."""
    found: dict[int, list[Source]] = {id: [] for id in stream_table_ids}
    for id, *row in conn.execute(_SQL["read_by_each"], (list(stream_table_ids),)):
        found[id].append(_source(tuple(row)))
    return found


def unread(conn: Connection) -> list[Source]:
    """The sources that no stream table reads any more."""
    return [_source(row) for row in conn.execute(_SQL["unread"])]


def read_only_by(conn: Connection, stream_table_ids: Sequence[int]) -> list[int]:
    """Return the sources that nobody reads, or none but these stream tables."""
    return [relid for (relid,) in conn.execute(_SQL["read_only_by"], (list(stream_table_ids),))]


def add(conn: Connection, source: Source) -> None:
    """Record it, or what has changed about it."""
    row = {
        "relid": source.relid, "schema": source.schema, "name": source.name, "mode": source.mode,
        "columns": Jsonb([asdict(column) for column in source.columns]), "members": list(source.members),
        "reason": source.reason, "turns": Jsonb([[str(turn.seen), turn.origin] for turn in source.turns]),
        "published_at": str(source.published_at) if source.published_at else None,
        "published_as": list(source.published_as),
        "identities": Jsonb({str(oid): text for oid, text in source.identities.items()}),
    }  # fmt: skip
    conn.execute(_SQL["put"], row)


def explain(conn: Connection, relid: int, reason: str) -> None:
    """Record why it is captured the way it is."""
    conn.execute(_SQL["explain"], (reason, relid))


def reserve(conn: Connection, relid: int, schema: str, name: str) -> None:
    """Record a source that nothing is captured of yet, for a stream table to depend on; one that is there stays."""
    conn.execute(_SQL["reserve"], (relid, schema, name))


def remove(conn: Connection, relid: int) -> None:
    """Forget it; an error while a stream table depends on it."""
    conn.execute(_SQL["remove"], (relid,))


def _source(row: tuple[Any, ...]) -> Source:
    relid, schema, name, mode, columns, members, reason, turns, published_at, published_as, identities, turned_at = row
    captured = tuple(CapturedColumn(**column) for column in columns)
    turned = tuple(Cutover(Snapshot.parse(seen), origin) for seen, origin in turns)
    former = {int(oid): text for oid, text in identities.items()}
    return Source(
        relid, schema, name, mode, captured, tuple(members), reason, turned, published_at, tuple(published_as), former,
        turned_at,
    )  # fmt: skip


# -- who reads them --------------------------------------------------------------------------


def depend(conn: Connection, stream_table_id: int, relid: int, columns: Sequence[str]) -> None:
    """Record that a stream table reads these columns of a source.

    Commit this before the stream table's first cut: from then on `prune` keeps what it will need.
    """
    conn.execute(_SQL["depend"], (stream_table_id, relid, sorted(set(columns))))


def depend_on_no_other(conn: Connection, stream_table_id: int, relids: Sequence[int]) -> None:
    """Forget that a stream table reads any source but these."""
    conn.execute(_SQL["depend_on_no_other"], (stream_table_id, list(relids)))


def needed(conn: Connection, relid: int) -> list[str]:
    """The columns that some stream table reads."""
    return [name for (name,) in conn.execute(_SQL["needed"], (relid,))]


def consumers(conn: Connection, relid: int) -> list[Snapshot | None]:
    """The frontiers of the stream tables that read it; None for one that has none yet."""
    rows = conn.execute(_SQL["consumers"], (relid,))
    return [Snapshot.parse(frontier) if frontier else None for (frontier,) in rows]


@dataclass(frozen=True)
class Wish:
    """What the readers of a source want of its capture."""

    modes: frozenset[str | None]
    """Their own settings; None is the general one."""
    is_read: bool
    """All of them are filled."""
    is_stream_table: bool
    """We write it ourselves."""


def wishes(conn: Connection) -> dict[int, Wish]:
    """By source that is read."""
    rows = conn.execute(_SQL["wanted_modes"])
    return {relid: Wish(frozenset(modes), filled, ours) for relid, modes, filled, ours in rows}


# -- what has changed ------------------------------------------------------------------------


def drift(conn: Connection, relids: Sequence[int] | None = None) -> dict[int, str]:
    """Sources that are no longer as their capture was set up for, each with the first thing that has changed."""
    return {relid: next(iter(found.values())) for relid, found in drifts(conn, relids).items()}


def drifts(conn: Connection, relids: Sequence[int] | None = None) -> dict[int, dict[str, str]]:
    """The same with all that has changed, by column: readers of the others need not care. "" is the table itself.

    Two queries for all of them; read in a cut, it tells how things stood at the cut. Whoever finds
    drift sets the capture up again, and that marks the buffer: each reader then reinitialises.
    """
    asked = [source for source in every(conn) if relids is None or source.relid in relids]
    members = relations.members(conn, [source.relid for source in asked])
    shapes = _shapes(conn, asked)
    found = {source.relid: _differences(source, shapes[source.relid], members[source.relid]) for source in asked}
    return {relid: what for relid, what in found.items() if what}


# The kinds of drift after which the queries over a source still mean what they meant: capture is set up again.
MEMBERS_CHANGED = "A partition or child was attached or detached."
_MADE_AGAIN = "was dropped and made again."


def is_harmless(what: str) -> bool:
    """Return whether queries still mean what they meant after this drift, as `drifts` tells it."""
    return what == MEMBERS_CHANGED or what.endswith(_MADE_AGAIN)


# By attnum: name, type, modifier, collation, generation. None: there is no such table any more.
_Shape = dict[int, tuple[Any, ...]]


def _shapes(conn: Connection, asked: Sequence[Source]) -> dict[int, _Shape | None]:
    shapes: dict[int, _Shape | None] = {}
    for relid, exists, attnum, *facts in conn.execute(_SQL["shapes"], ([source.relid for source in asked],)):
        shape = shapes.setdefault(relid, {} if exists else None)
        if shape is not None and facts[0] is not None:
            shape[attnum] = tuple(facts)
    return shapes


def _differences(source: Source, shape: _Shape | None, members: tuple[int, ...]) -> dict[str, str]:
    """What differs, in words; empty when nothing does."""
    if shape is None:
        return {"": "The table was dropped."}
    found = {"": MEMBERS_CHANGED} if members != source.members else {}
    return found | {one.name: what for one in source.columns if (what := _changed(one, shape))}


def _changed(column: CapturedColumn, shape: _Shape) -> str:
    now = shape.get(column.attnum)
    recorded = (column.name, column.type_oid, column.typmod, column.collation, column.generation)
    if now != recorded and recorded in shape.values():
        return f"Column {quoted(column.name)} {_MADE_AGAIN}"
    if now is None:
        return f"Column {quoted(column.name)} was dropped."
    if now[0] != column.name:
        return f"Column {quoted(column.name)} was renamed to {quoted(now[0])}."
    if now[1:] != (column.type_oid, column.typmod, column.collation, column.generation):
        return f"Column {quoted(column.name)} has another type, collation or expression."
    return ""
