"""Change buffers: their names, and how a refresh asks them for its slice.

    millstream_changes.changes_<oid of the source>
        id      in no useful order; never compare it
        xid     the top-level transaction, as xid8: what a frontier decides by
        action  I an image that came, D an image that went, T the table was truncated,
                X the source changed under us: what is here does not tell the whole change
        c<n>    the captured columns, named by attnum: a rename does not touch them

An update is a D and an I. A slice is the rows of transactions visible at the cut (the reader's own
snapshot sees to that) and not visible in the frontier (the condition here sees to that).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import errors, sql

from millstream.errors import SourceChanged
from millstream.frontier.snapshot import Snapshot
from millstream.store.connection import Connection

SCHEMA = "millstream_changes"

Pair = tuple[int, Snapshot]


def buffer_name(relid: int) -> sql.Identifier:
    """The buffer of a source."""
    return sql.Identifier(SCHEMA, f"changes_{relid}")


def column_name(attnum: int) -> sql.Identifier:
    """The buffer's column for a source's column."""
    return sql.Identifier(f"c{attnum}")


def slice_condition(frontier: Snapshot) -> sql.Composed:
    """True of the rows that came after the frontier; the first half is what the index is for."""
    return sql.SQL("xid >= {}::xid8 AND NOT pg_visible_in_snapshot(xid, {}::pg_snapshot)").format(
        sql.Literal(str(frontier.xmin)), sql.Literal(str(frontier))
    )


@dataclass(frozen=True)
class Pending:
    """What waits in a buffer after a frontier."""

    relid: int
    frontier: Snapshot
    rows: int
    """How many, but never more than the cap that was asked for."""
    truncated: bool = False
    """A TRUNCATE is among them, counted or not."""
    changed: bool = False
    """A mark that the source changed shape is among them, counted or not."""


def pending(conn: Connection, pairs: Sequence[Pair], cap: int = 1_000_000) -> list[Pending]:
    """For each (source, frontier), in order: what waits there. One query finds where anything does,
    equal pairs asked once; only those are then counted."""
    distinct = list(dict.fromkeys(pairs))
    if not distinct:
        return []
    try:
        awake = _awake(conn, distinct)
        rows = conn.execute(sql.SQL(" UNION ALL ").join(_count(*one, cap) for one in awake)).fetchall() if awake else []
    except errors.UndefinedTable as error:
        relids = ", ".join(str(relid) for relid, _ in distinct)
        raise SourceChanged.shape(relids, f"A change buffer is gone: {error.diag.message_primary}.") from error
    found = {pair: Pending(*pair, 0) for pair in distinct}
    found |= {distinct[place]: Pending(*distinct[place], *facts) for place, *facts in rows}
    return [found[pair] for pair in pairs]


def _awake(conn: Connection, pairs: Sequence[Pair]) -> list[tuple[int, int, Snapshot]]:
    """The pairs after whose frontier there is anything, with their place.

    Frontiers are parameters, so that the text is the same at every tick and the server keeps its plan.
    """
    frontiers = list(dict.fromkeys(frontier for _, frontier in pairs))
    parameters = {f"f{number}": str(frontier) for number, frontier in enumerate(frontiers)}
    parameters |= {f"x{number}": str(frontier.xmin) for number, frontier in enumerate(frontiers)}
    parts = [
        sql.SQL(
            "SELECT {place} WHERE EXISTS (SELECT FROM {buffer}"
            " WHERE xid >= {xmin}::xid8 AND NOT pg_visible_in_snapshot(xid, {frontier}::pg_snapshot))"
        ).format(
            place=sql.Literal(place),
            buffer=buffer_name(relid),
            xmin=sql.Placeholder(f"x{frontiers.index(frontier)}"),
            frontier=sql.Placeholder(f"f{frontiers.index(frontier)}"),
        )
        for place, (relid, frontier) in enumerate(pairs)
    ]
    rows = conn.execute(sql.SQL(" UNION ALL ").join(parts), parameters, prepare=True)
    return [(place, *pairs[place]) for (place,) in rows]


def _count(place: int, relid: int, frontier: Snapshot, cap: int) -> sql.Composed:
    # T and X are looked for apart from the count, by the index that holds nothing else: the cap must not hide them.
    return sql.SQL(
        "SELECT {place}, (SELECT count(*) FROM (SELECT FROM {buffer} WHERE {slice} LIMIT {cap}) AS counted),"
        " EXISTS (SELECT FROM {buffer} WHERE action = 'T' AND {slice}),"
        " EXISTS (SELECT FROM {buffer} WHERE action = 'X' AND {slice})"
    ).format(place=sql.Literal(place), buffer=buffer_name(relid), slice=slice_condition(frontier), cap=sql.Literal(cap))
