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
        ids = {(found.relations, oid): id for oid, id in upstreams.among(conn, found.relids()).items()}
        paths = {id: _path(found, relation, set(ids)) for relation, id in ids.items()}
        names = lineage.names(conn, {step for path in paths.values() for step in path[1:-1]})
    reached = sorted((id, path) for id, path in paths.items() if path)
    return tuple(Upstream(id, tuple(names[step] for step in path[1:-1])) for id, path in reached)


def _path(found: Lineage, end: Object, stream_tables: set[Object]) -> tuple[Object, ...]:
    """Return the shortest path from a query to a stream table that passes through no other stream table."""
    others = stream_tables - {end}
    return shortest_path(
        found.root, lambda step: step == end, lambda step: () if step in others else found.following(step)
    )
