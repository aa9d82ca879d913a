"""Change buffers: their names, and how a refresh asks them for its slice.

    millstream_changes.changes_<oid of the source>
        id      in no useful order; never compare it
        xid     the top-level transaction, as xid8: what a frontier decides by
        action  I an image that came, D an image that went, T the table was truncated,
                X the source changed under us: what is here does not tell the whole change
        origin  t a trigger wrote it, l the log brought it, m a mark of our own
        c<n>    the captured columns, named by attnum: a rename does not touch them

An update is a D and an I. A slice is the rows of transactions visible at the cut (the reader's own
snapshot sees to that) and not visible in the frontier (the condition here sees to that).

While a source is handed over, triggers and log both write, and a transaction may be here twice, or half: it counts as
the one origin told it that was in charge of it. What the log brought is written later than its transaction
committed, so it is read later than the cut, and then the cut is a condition too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import errors, sql

from millstream.catalog.sources import Origin, Source
from millstream.errors import SourceChanged
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection

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


def seen_condition(snapshot: Snapshot) -> sql.Composed:
    """True of the rows whose transaction a snapshot sees."""
    return sql.SQL("pg_visible_in_snapshot(xid, {}::pg_snapshot)").format(sql.Literal(str(snapshot)))


_OTHER: Mapping[Origin, Origin] = {"t": "l", "l": "t"}


def origin_condition(source: Source) -> sql.Composed:
    """True of the rows that count: those of whoever was in charge of their transaction, and our marks."""
    left_out: sql.Composable = sql.Literal(_OTHER[source.origin])
    if source.cutovers:
        case = [
            sql.SQL("WHEN {} THEN {}").format(seen_condition(turn.seen), sql.Literal(_OTHER[turn.origin]))
            for turn in source.cutovers
        ]
        left_out = sql.SQL("CASE {} ELSE {} END").format(sql.SQL(" ").join(case), left_out)
    return sql.SQL('origin <> {}::"char"').format(left_out)


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


def pending(
    conn: Connection,
    pairs: Sequence[Pair],
    cap: int = 1_000_000,
    *,
    sources: Mapping[int, Source] | None = None,
    until: Snapshot | None = None,
) -> list[Pending]:
    """For each (source, frontier), in order: what waits there, up to a cut. One query finds where anything does,
    equal pairs asked once; only those are then counted. Without its source all of a buffer counts."""
    distinct = list(dict.fromkeys(pairs))
    if not distinct:
        return []
    counting = {relid: _counting((sources or {}).get(relid), until) for relid, _ in distinct}
    try:
        awake = _awake(conn, distinct, counting)
        counts = [_count(*one, counting[one[1]], cap) for one in awake]
        rows = conn.execute(sql.SQL(" UNION ALL ").join(counts)).fetchall() if awake else []
    except errors.UndefinedTable as error:
        relids = ", ".join(str(relid) for relid, _ in distinct)
        raise SourceChanged.shape(relids, f"A change buffer is gone: {error.diag.message_primary}.") from error
    found = {pair: Pending(*pair, 0) for pair in distinct}
    found |= {distinct[place]: Pending(*distinct[place], *facts) for place, *facts in rows}
    return [found[pair] for pair in pairs]


# Of most sources at most ticks: composed once.
_SETTLED: Mapping[Origin, sql.SQL] = {"t": sql.SQL(" AND origin <> 'l'"), "l": sql.SQL(" AND origin <> 't'")}


def _counting(source: Source | None, until: Snapshot | None) -> sql.Composable:
    """The part of the condition that does not depend on the frontier."""
    if source and not source.cutovers and until is None:
        return _SETTLED[source.origin]
    parts: list[sql.Composable] = [origin_condition(source)] if source else []
    parts += [seen_condition(until)] if until else []
    return sql.SQL("").join(sql.SQL(" AND {}").format(part) for part in parts)


def _awake(
    conn: Connection, pairs: Sequence[Pair], counting: Mapping[int, sql.Composable]
) -> list[tuple[int, int, Snapshot]]:
    """The pairs after whose frontier there is anything, with their place.

    Frontiers are parameters, so that the text is the same at every tick and the server keeps its plan.
    """
    frontiers = list(dict.fromkeys(frontier for _, frontier in pairs))
    parameters = {f"f{number}": str(frontier) for number, frontier in enumerate(frontiers)}
    parameters |= {f"x{number}": str(frontier.xmin) for number, frontier in enumerate(frontiers)}
    parts = [
        sql.SQL(
            "SELECT {place} WHERE EXISTS (SELECT FROM {buffer}"
            " WHERE xid >= {xmin}::xid8 AND NOT pg_visible_in_snapshot(xid, {frontier}::pg_snapshot){counting})"
        ).format(
            place=sql.Literal(place),
            buffer=buffer_name(relid),
            xmin=sql.Placeholder(f"x{frontiers.index(frontier)}"),
            frontier=sql.Placeholder(f"f{frontiers.index(frontier)}"),
            counting=counting[relid],
        )
        for place, (relid, frontier) in enumerate(pairs)
    ]
    rows = conn.execute(sql.SQL(" UNION ALL ").join(parts), parameters, prepare=True)
    return [(place, *pairs[place]) for (place,) in rows]


def _count(place: int, relid: int, frontier: Snapshot, counting: sql.Composable, cap: int) -> sql.Composed:
    # T and X are looked for apart from the count, by the index that holds nothing else: the cap must not hide them.
    return sql.SQL(
        "SELECT {place}, (SELECT count(*) FROM (SELECT FROM {buffer} WHERE {slice} LIMIT {cap}) AS counted),"
        " EXISTS (SELECT FROM {buffer} WHERE action = 'T' AND {slice}),"
        " EXISTS (SELECT FROM {buffer} WHERE action = 'X' AND {slice})"
    ).format(
        place=sql.Literal(place),
        buffer=buffer_name(relid),
        slice=slice_condition(frontier) + counting,
        cap=sql.Literal(cap),
    )
