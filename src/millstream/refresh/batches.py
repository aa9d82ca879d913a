"""Choose which stream tables share a cut: whole graphs of them, as many as the server's lock table
has room for.

    a -> b -> c      d -> e      f           three graphs: tables that read each other, directly or not
    [a b c d e] [f]                          two cuts, if the locks of all six are too many

A graph is refreshed in one transaction, so all of it shows one snapshot. Graphs that share no
stream table are independent: each cut takes as many of them as fit, those with the same sources
next to each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.algebra.block import Block
from millstream.capture.buffer.slices import buffer_name
from millstream.postgres import lock_table, relations
from millstream.postgres.connection import Connection
from millstream.refresh.job import Job, relids_read
from millstream.store import staging

# Locks of a cut on our catalog and the server's, with their indexes.
LOCKS_PER_CUT = 80
# Per shape: up to five staging tables, each with its row type, its TOAST table and the index of
# that.
LOCKS_PER_SHAPE = 20

Graph = Sequence[Job]


@dataclass(frozen=True)
class Batches:
    """What was chosen."""

    cuts: tuple[tuple[Graph, ...], ...]
    """Graphs that share a cut."""
    too_large: tuple[tuple[Graph, int], ...] = ()
    """Graphs that do not fit by themselves, each with the number of locks that it takes."""


def graphs(jobs: Sequence[Job]) -> list[Graph]:
    """Group the jobs so that no group reads a stream table of another group; keep their order in
    each group.
    """
    group = {job.table.id: job.table.id for job in jobs}

    def root(id_: int) -> int:
        while group[id_] != id_:
            id_ = group[id_]
        return id_

    for job in jobs:
        for upstream in job.upstreams & group.keys():
            group[root(job.table.id)] = root(upstream)
    found = dict[int, list[Job]]()
    for job in jobs:
        found.setdefault(root(job.table.id), []).append(job)
    return sorted(found.values(), key=_first_source)


def _first_source(graph: Graph) -> int:
    return min((oid for job in graph for oid in relids_read(job)), default=0)


def batches(found: Sequence[Graph], footprints: Mapping[int, Footprint], room: int) -> Batches:
    """Fill one cut after the other.

    A single stream table that seems too large is left to the server.
    """
    cuts, too_large, filled = list[list[Graph]](), list[tuple[Graph, int]](), _Locked()
    for graph in found:
        own = [footprints[job.table.id] for job in graph]
        alone = _Locked().with_more(own)
        if alone > room and len(graph) > 1:
            too_large.append((graph, alone))
            continue
        if not cuts or filled.with_more(own) > room:
            cuts.append([])
            filled = _Locked()
        cuts[-1].append(graph)
        filled.add(own)
    return Batches(tuple(map(tuple, cuts)), tuple(too_large))


# -- the locks of a refresh ------------------------------------------------------------------

# What a refresh locks: a relation by its oid or its name; the shape of its staging tables.
Locked = int | str


@dataclass(frozen=True)
class Footprint:
    """The locks that the refresh of a stream table takes until its transaction ends, by what is
    locked.
    """

    locks: Mapping[Locked, int]


class _Locked:
    """What a cut has locked so far; two stream tables that lock the same thing lock it once."""

    def __init__(self) -> None:
        self._things: set[Locked] = set()
        self._locks = LOCKS_PER_CUT

    def with_more(self, footprints: Sequence[Footprint]) -> int:
        """Return how many locks it would need together with these."""
        more = {
            thing: locks
            for one in footprints
            for thing, locks in one.locks.items()
            if thing not in self._things
        }
        return self._locks + sum(more.values())

    def add(self, footprints: Sequence[Footprint]) -> None:
        self._locks = self.with_more(footprints)
        self._things.update(*(one.locks for one in footprints))


class Footprints:
    """The footprints of stream tables, computed once for each plan."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[Block, ...], Footprint]] = {}

    def of(self, conn: Connection, jobs: Sequence[Job]) -> dict[int, Footprint]:
        """Return it by id of a stream table."""
        new = [job for job in jobs if self._known.get(job.table.id, (None,))[0] is not job.blocks]
        if new:
            found = footprints(conn, new)
            self._known |= {job.table.id: (job.blocks, found[job.table.id]) for job in new}
        return {job.table.id: self._known[job.table.id][1] for job in jobs}


def footprints(conn: Connection, jobs: Sequence[Job]) -> dict[int, Footprint]:
    """Return the locks that each refresh needs, by id of the stream table, by three queries."""
    partitions = relations.partitions(conn, sorted(set().union(*map(relids_read, jobs))))
    touched = {job.table.id: _touched(job, partitions) for job in jobs}
    every = set().union(*touched.values())
    oids, names = (
        [one for one in every if isinstance(one, int)],
        [one for one in every if isinstance(one, str)],
    )
    weights = lock_table.weights(conn, oids, names)
    # Of one that is not planned: nothing is staged, unless it changes and is planned after all.
    shapes = staging.shapes(conn, {job.names: job.blocks for job in jobs})
    found = dict[int, Footprint]()
    for job in jobs:
        locks = {one: weights[one] for one in touched[job.table.id] if one in weights}
        locks |= dict.fromkeys(shapes[job.names], LOCKS_PER_SHAPE)
        found[job.table.id] = Footprint({f"stream table {job.table.id}": 1, **locks})
    return found


def _touched(job: Job, partitions: Mapping[int, Sequence[int]]) -> set[Locked]:
    """Return the relations that it reads and writes: sources, buffers, the stream table, the state
    of its blocks.
    """
    sources, written = relids_read(job), {job.table.relid} if job.table.relid else set()
    found: set[Locked] = {oid for source in sources for oid in (source, *partitions[source])}
    # The stream table's own buffer too: where others read it, its changes are captured while it is
    # written.
    found |= written | {buffer_name(oid).as_string() for oid in sources | written}
    own = [job.names.at(block.position) for block in job.blocks]
    return found | {
        name.as_string() for names in own for name in (names.state, names.materialized, names.shown)
    }
