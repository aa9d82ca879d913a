"""The graph of stream tables as it is in the catalog, and the refusal of a cycle in it.

A stream table can come to read itself without being touched: a view or a function under its query is replaced, a table
is swapped for one of its name. So what a query reads is looked up each time that a plan is made, and compared with
what the others were last found to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from millstream.catalog import lineage, queries, upstreams
from millstream.catalog.lineage import Lineage, Object
from millstream.catalog.upstreams import Upstream
from millstream.errors import BadQuery, Cycle
from millstream.scheduler.graph import Graph, Read, shortest_path
from millstream.store.connection import Connection


def recorded_graph(conn: Connection) -> Graph:
    """Return the graph of all stream tables, as recorded."""
    recorded = upstreams.every(conn)
    return Graph(upstreams.names(conn), tuple(read for id, found in recorded.items() for read in _reads(id, found)))


def upstreams_under(conn: Connection, query: str) -> tuple[Upstream, ...]:
    """Return the stream tables that a query reads, whose names are qualified."""
    with queries.rolled_back(conn):
        found = lineage.of(conn, queries.temporary_view(conn, query))
        ids = {(found.relations, oid): id for oid, id in upstreams.among(conn, found.relids()).items()}
        paths = {id: _path(found, relation, set(ids)) for relation, id in ids.items()}
        names = lineage.names(conn, {step for path in paths.values() for step in path[1:-1]})
    reached = sorted((id, path) for id, path in paths.items() if path)
    return tuple(Upstream(id, tuple(names[step] for step in path[1:-1])) for id, path in reached)


def _path(found: Lineage, end: Object, stream_tables: set[Object]) -> tuple[Object, ...]:
    """Return the way from a query to a stream table, through no other stream table."""
    others = stream_tables - {end}
    return shortest_path(found.root, lambda one: one == end, lambda one: () if one in others else found.following(one))


def refuse_cycle(conn: Connection, id: int, found: Sequence[Upstream]) -> None:
    """Raise Cycle when a stream table that reads these would read itself."""
    if not found:
        return
    _refuse_cycle(recorded_graph(conn).reading(id, _reads(id, found)), id)


def refuse_cycle_of_new(conn: Connection, id: int, name: str, found: Sequence[Upstream]) -> None:
    """Raise Cycle when a stream table that was just made is read by one that it reads.

    That one read a table or view of the same name, which is gone: from now on the name in its query means the new one.
    """
    if not found:
        return
    whole = recorded_graph(conn).reading(id, _reads(id, found))
    for other, query in upstreams.naming(conn, name):
        with suppress(BadQuery):
            whole = whole.reading(other, _reads(other, upstreams_under(conn, query)))
    _refuse_cycle(whole, id)


def _refuse_cycle(whole: Graph, id: int) -> None:
    if cycle := whole.cycle(id):
        raise Cycle.along(whole.names[id], whole.printed(cycle))


def record(conn: Connection, id: int, found: Sequence[Upstream]) -> None:
    """Record what a stream table reads, in the caller's transaction; Cycle when it would read itself.

    Sessions take turns at it: two that each record one half of a cycle would not see the other's.
    """
    if list(found) == upstreams.of(conn, id):
        return
    upstreams.lock(conn)
    refuse_cycle(conn, id, found)
    upstreams.put(conn, id, found)


def _reads(id: int, found: Sequence[Upstream]) -> list[Read]:
    return [Read(id, one.id, one.via) for one in found]
