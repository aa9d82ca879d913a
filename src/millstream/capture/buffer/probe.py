"""Look whether sources have changes that their readers have not consumed, without a cut and without
a lock.

The service asks this at every tick, and at most ticks nothing has changed. So the first statement
is cheap: does a buffer have any row since the oldest transaction that one of its readers' frontiers
has not seen? Only for buffers that have one, a second statement looks from each frontier.

The answer is a hint. A change that is not visible yet, because it has not been read from WAL or
commits at this moment, is found by the next look. A row that does not count, because it was
captured twice during a transition, causes a refresh without effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from psycopg import errors, sql

from millstream.capture.buffer.slices import Pair, buffer_name, pairs_with_changes
from millstream.postgres.composed import union_all
from millstream.postgres.connection import Connection

T = TypeVar("T")


def changed(conn: Connection, pairs: Collection[Pair]) -> set[Pair]:
    """Return those (source, frontier) after which there are changes, or for which this is not
    known.
    """
    xmins = dict[int, int]()
    for relid, frontier in pairs:
        xmins[relid] = min(xmins.get(relid, frontier.xmin), frontier.xmin)

    def ask(known: set[int]) -> set[Pair]:
        found = _since(conn, {relid: xmins[relid] for relid in known})
        return _changed(conn, [pair for pair in pairs if pair[0] in found])

    found, unknown = _answer(conn, set(xmins), ask)
    return found | {pair for pair in pairs if pair[0] in unknown}


def sources_since(conn: Connection, xmins: Mapping[int, int]) -> set[int]:
    """Return the sources whose buffers have rows of these transactions or later ones, or may have
    such rows.
    """
    found, unknown = _answer(
        conn, set(xmins), lambda known: _since(conn, {relid: xmins[relid] for relid in known})
    )
    return found | unknown


def _answer(
    conn: Connection, relids: set[int], ask: Callable[[set[int]], set[T]]
) -> tuple[set[T], set[int]]:
    """Return the answer, and the sources that it does not cover: their buffers are gone, or a lock
    was not granted.

    A refresh of their readers finds the reason and repairs it.
    """
    gone = set[int]()
    try:
        try:
            return ask(relids), gone
        except errors.UndefinedTable:
            gone = _gone(conn, relids)
            return ask(relids - gone), gone
    except (errors.UndefinedTable, errors.LockNotAvailable):
        return set(), relids


def _gone(conn: Connection, relids: set[int]) -> set[int]:
    """Return the sources whose buffers do not exist."""
    query = "SELECT relid FROM unnest(%s::text[], %s::oid[]) AS given (name, relid) WHERE to_regclass(name) IS NULL"
    ordered = sorted(relids)
    return {
        relid
        for (relid,) in conn.execute(
            query, ([buffer_name(relid).as_string() for relid in ordered], ordered)
        )
    }


def _since(conn: Connection, xmins: Mapping[int, int]) -> set[int]:
    if not xmins:
        return set()
    relids = tuple(sorted(xmins))
    rows = conn.execute(_since_query(relids), ([str(xmins[relid]) for relid in relids],))
    return {relid for (relid,) in rows}


@lru_cache(maxsize=64)
def _since_query(relids: tuple[int, ...]) -> sql.Composed:
    """Return the query for these sources: the same text at every tick, so that the server keeps its
    plan.
    """
    exists = sql.SQL(
        "SELECT {relid} FROM given WHERE EXISTS (SELECT FROM {buffer} WHERE xid >= xmins[{place}])"
    )
    parts = [
        exists.format(relid=sql.Literal(relid), buffer=buffer_name(relid), place=sql.Literal(place))
        for place, relid in enumerate(relids, start=1)
    ]
    given = sql.SQL("WITH given AS MATERIALIZED (SELECT %s::xid8[] AS xmins) ")
    return given + union_all(parts)


def _changed(conn: Connection, pairs: Sequence[Pair]) -> set[Pair]:
    """Return the pairs after whose frontiers there are rows."""
    everything = {relid: sql.SQL("") for relid, _ in pairs}
    return (
        {(relid, frontier) for _, relid, frontier in pairs_with_changes(conn, pairs, everything)}
        if pairs
        else set()
    )
