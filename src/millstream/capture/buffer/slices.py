"""Change buffers: their names, and the conditions that select the slice of a refresh.

    millstream_changes.changes_<oid of the source>
        id      in no useful order; never compare it
        xid     the top-level transaction, as xid8: what a frontier decides by
        action  I an inserted image, D a deleted image, T the table was truncated,
                X the source changed its shape: the buffer does not hold every change
        origin  t written by a trigger, l read from WAL, others: a mark (X) of Millstream itself, by its cause
        c<n>    the captured columns, named by attnum, so that a rename does not matter

An update is a D and an I. A slice is the rows of transactions that are visible at the cut (by the
reader's own snapshot) and not visible in the frontier (by the condition built here).

During a CDC transition, triggers and WAL capture both write, so the buffer may hold a transaction
twice, or in part. The cutovers of the source say which origin to read for each transaction. WAL
capture writes rows after their transaction has committed, so a refresh reads them after its cut,
and the cut becomes part of the condition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from psycopg import errors, sql

from millstream.catalog.sources import Origin, Source
from millstream.errors import SourceChanged
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.composed import union_all
from millstream.postgres.connection import Connection

SCHEMA = "millstream_changes"

# A source's oid and the frontier of a stream table that reads it: its slice begins there.
Pair = tuple[int, Snapshot]


def buffer_name(relid: int) -> sql.Identifier:
    """Return the name of a source's buffer."""
    return sql.Identifier(SCHEMA, f"changes_{relid}")


def column_name(attnum: int) -> sql.Identifier:
    """Return the name of the buffer's column for a source's column."""
    return sql.Identifier(f"c{attnum}")


def slice_condition(frontier: Snapshot) -> sql.Composed:
    """Return the condition for rows after the frontier.

    Its first half lets PostgreSQL use the index on xid.
    """
    return sql.SQL("xid >= {}::xid8 AND NOT pg_visible_in_snapshot(xid, {}::pg_snapshot)").format(
        sql.Literal(str(frontier.xmin)), sql.Literal(str(frontier))
    )


def seen_condition(snapshot: Snapshot) -> sql.Composed:
    """Return the condition for rows whose transaction a snapshot sees."""
    return sql.SQL("pg_visible_in_snapshot(xid, {}::pg_snapshot)").format(
        sql.Literal(str(snapshot))
    )


# Reason codes for a buffer that does not hold every change, the worst first; each with the origins
# of its X rows.
GAPS: Mapping[str, str] = {
    "LOG_LOST": "w",
    "CAPTURE_GAP": "ml",
    "SOURCE_CHANGED": "st",
    "PARTITIONS_CHANGED": "p",
}


# The origin that is ignored when the other one is read.
_OTHER: Mapping[Origin, Origin] = {"t": "l", "l": "t"}


def origin_condition(source: Source) -> sql.Composed:
    """Return the condition for rows of the origin that the cutovers assign to their transaction,
    and for marks.
    """
    left_out: sql.Composable = sql.Literal(_OTHER[source.origin])
    if source.cutovers:
        case = [
            sql.SQL("WHEN {} THEN {}").format(
                seen_condition(cutover.seen), sql.Literal(_OTHER[cutover.origin])
            )
            for cutover in source.cutovers
        ]
        left_out = sql.SQL("CASE {} ELSE {} END").format(sql.SQL(" ").join(case), left_out)
    return sql.SQL('origin <> {}::"char"').format(left_out)


@dataclass(frozen=True)
class Pending:
    """How many changes a buffer has after a frontier, and whether they are complete."""

    relid: int
    frontier: Snapshot
    rows: int
    """Their number, up to the cap."""
    truncated: bool = False
    """True if there is a TRUNCATE among them, counted or not."""
    gap: str = ""
    """The reason code of the gap if there is an X mark among them, counted or not."""


def pending(
    conn: Connection,
    pairs: Sequence[Pair],
    cap: int = 1_000_000,
    *,
    sources: Mapping[int, Source] | None = None,
    until: Snapshot | None = None,
) -> list[Pending]:
    """Count the changes after each (source, frontier), up to a cut; return them in the order of
    `pairs`.

    One query finds the pairs that have any change; a second one counts only those. Rows of every
    origin are counted for a relid that is not in `sources`.
    """
    distinct = list(dict.fromkeys(pairs))
    if not distinct:
        return []
    conditions = {
        relid: _shared_condition((sources or {}).get(relid), until) for relid, _ in distinct
    }
    try:
        changed = pairs_with_changes(conn, distinct, conditions)
        counts = [
            _count(place, relid, frontier, conditions[relid], cap)
            for place, relid, frontier in changed
        ]
        rows = conn.execute(union_all(counts)).fetchall() if changed else []
    except errors.UndefinedTable as error:
        relids = ", ".join(str(relid) for relid, _ in distinct)
        raise SourceChanged.shape(
            relids, f"A change buffer is gone: {error.diag.message_primary}."
        ) from error
    found = {pair: Pending(*pair, 0) for pair in distinct}
    for place, count, truncated, origins in rows:
        found[distinct[place]] = Pending(*distinct[place], count, truncated, gap_of(origins))
    return [found[pair] for pair in pairs]


def gap_of(origins: Collection[str]) -> str:
    """Return the reason code for X rows of these origins; "" if there are none.

    >>> gap_of(["p", "w"]), gap_of([])
    ('LOG_LOST', '')
    """
    return next(
        (code for code, own in GAPS.items() if any(origin in own for origin in origins)), ""
    )


# For sources that are not in a transition. Composed once: every tick needs one for each source.
_SETTLED: Mapping[Origin, sql.SQL] = {
    "t": sql.SQL(" AND origin <> 'l'"),
    "l": sql.SQL(" AND origin <> 't'"),
}


def _shared_condition(source: Source | None, until: Snapshot | None) -> sql.Composable:
    """Return the part of the condition that all readers of a source share: the origins, and the
    cut's snapshot.
    """
    if source and not source.cutovers and until is None:
        return _SETTLED[source.origin]
    parts: list[sql.Composable] = [origin_condition(source)] if source else []
    parts += [seen_condition(until)] if until else []
    return sql.SQL("").join(sql.SQL(" AND {}").format(part) for part in parts)


def pairs_with_changes(
    conn: Connection, pairs: Sequence[Pair], conditions: Mapping[int, sql.Composable]
) -> list[tuple[int, int, Snapshot]]:
    """Return the pairs whose buffer has a row after the frontier, each with its position among
    `pairs`.

    Frontiers are parameters, so that the text is the same at every tick and psycopg prepares it.
    """
    frontiers = list(dict.fromkeys(frontier for _, frontier in pairs))
    parameters = {f"f{number}": str(frontier) for number, frontier in enumerate(frontiers)}
    parameters |= {f"x{number}": str(frontier.xmin) for number, frontier in enumerate(frontiers)}
    parts = [
        sql.SQL(
            "SELECT {place} WHERE EXISTS (SELECT FROM {buffer}"
            " WHERE xid >= {xmin}::xid8 AND NOT pg_visible_in_snapshot(xid, {frontier}::pg_snapshot){condition})"
        ).format(
            place=sql.Literal(place),
            buffer=buffer_name(relid),
            xmin=sql.Placeholder(f"x{frontiers.index(frontier)}"),
            frontier=sql.Placeholder(f"f{frontiers.index(frontier)}"),
            condition=conditions[relid],
        )
        for place, (relid, frontier) in enumerate(pairs)
    ]
    rows = conn.execute(union_all(parts), parameters, prepare=True)
    return [(place, *pairs[place]) for (place,) in rows]


def _count(
    place: int, relid: int, frontier: Snapshot, condition: sql.Composable, cap: int
) -> sql.Composed:
    # Not among the counted rows, where the cap could hide them: T and X are found by an index that
    # has only them.
    return sql.SQL(
        "SELECT {place}, (SELECT count(*) FROM (SELECT FROM {buffer} WHERE {slice} LIMIT {cap}) AS counted),"
        " EXISTS (SELECT FROM {buffer} WHERE action = 'T' AND {slice}),"
        " ARRAY(SELECT DISTINCT origin::text FROM {buffer} WHERE action = 'X' AND {slice})"
    ).format(
        place=sql.Literal(place),
        buffer=buffer_name(relid),
        slice=slice_condition(frontier) + condition,
        cap=sql.Literal(cap),
    )
