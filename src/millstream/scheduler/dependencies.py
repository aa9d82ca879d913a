"""The recorded graph of stream tables, and the refusal of cycles in it.

A stream table can read itself after a change elsewhere: a view or a function under its query is
replaced, or a table is exchanged for one of the same name. So each planning determines what the
query reads, and compares it with the recorded upstreams of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from millstream.catalog import upstreams
from millstream.catalog.upstreams import Upstream
from millstream.compiler.server.upstreams import upstreams_under
from millstream.errors import BadQuery, Cycle
from millstream.postgres.connection import Connection
from millstream.scheduler.graph import Dependency, Graph


def recorded_graph(conn: Connection) -> Graph:
    """Return the graph of all stream tables, as recorded."""
    recorded = upstreams.every(conn)
    return Graph(
        upstreams.names(conn),
        tuple(read for id, found in recorded.items() for read in _reads(id, found)),
    )


def refuse_cycle(conn: Connection, id: int, found: Sequence[Upstream]) -> None:
    """Raise Cycle if a stream table that reads these would read itself."""
    if not found:
        return
    _refuse_cycle(recorded_graph(conn).reading(id, _reads(id, found)), id)


def refuse_cycle_of_new(conn: Connection, id: int, name: str, found: Sequence[Upstream]) -> None:
    """Raise Cycle if a new stream table is read by one that it reads.

    The other one read a table or view of the same name that was dropped: its query now refers to
    the new stream table.
    """
    if not found:
        return
    whole = recorded_graph(conn).reading(id, _reads(id, found))
    for other, query in upstreams.queries_with_name(conn, name):
        # If the server rejects its query, its own refresh reports that.
        with suppress(BadQuery):
            whole = whole.reading(other, _reads(other, upstreams_under(conn, query)))
    _refuse_cycle(whole, id)


def _refuse_cycle(whole: Graph, id: int) -> None:
    if cycle := whole.cycle(id):
        raise Cycle.along(whole.names[id], whole.printed(cycle))


def record(conn: Connection, id: int, found: Sequence[Upstream]) -> None:
    """Record the upstreams of a stream table, in the caller's transaction; raise Cycle if it would
    read itself.

    Sessions do this one at a time: otherwise two that each record one half of a cycle would not see
    each other's.
    """
    if list(found) == upstreams.of(conn, id):
        return
    upstreams.lock(conn)
    refuse_cycle(conn, id, found)
    upstreams.put(conn, id, found)


def _reads(id: int, found: Sequence[Upstream]) -> list[Dependency]:
    return [Dependency(id, one.id, one.via) for one in found]
