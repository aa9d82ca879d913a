"""Find the stream tables that a query reads, also through views and functions."""

from __future__ import annotations

from millstream.algebra.shortest_path import shortest_path
from millstream.catalog import upstreams
from millstream.catalog.upstreams import Upstream
from millstream.compiler.server import queries
from millstream.postgres import lineage
from millstream.postgres.connection import Connection
from millstream.postgres.lineage import Lineage, Object


def upstreams_under(conn: Connection, query: str) -> tuple[Upstream, ...]:
    """Return the stream tables that a query reads, whose names are qualified."""
    with queries.rolled_back(conn):
        found = lineage.of(conn, queries.temporary_view(conn, query))
        stream_tables = {
            (found.relations, oid): id
            for oid, id in upstreams.stream_tables_of(conn, found.relids()).items()
        }
        paths = {
            id: _path(found, relation, set(stream_tables)) for relation, id in stream_tables.items()
        }
        # The steps between the query and the stream table.
        between = {id: path[1:-1] for id, path in paths.items() if path}
        names = lineage.names(conn, {step for steps in between.values() for step in steps})
    return tuple(
        Upstream(id, tuple(names[step] for step in steps)) for id, steps in sorted(between.items())
    )


def _path(found: Lineage, end: Object, stream_tables: set[Object]) -> tuple[Object, ...]:
    """Return the shortest path from a query to a stream table that passes through no other stream
    table.
    """
    others = stream_tables - {end}

    def following(step: Object) -> tuple[Object, ...]:
        return () if step in others else found.following(step)

    return shortest_path(found.root, lambda step: step == end, following)
