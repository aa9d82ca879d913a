"""Gather the facts that `decide.py` decides by: what waits for stream tables at the cut, asked for all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.capture.buffer.slices import Pair, Pending
from millstream.catalog import definition_digests, sources
from millstream.catalog.definition_digests import Change
from millstream.postgres.connection import Connection
from millstream.refresh.buffers import Buffers
from millstream.refresh.decide import Facts, SourceFacts
from millstream.refresh.job import Job, Read


def facts_of(
    conn: Connection,
    buffers: Buffers,
    jobs: Sequence[Job],
    read: Read,
    changes: Mapping[int, Sequence[Change]],
    max_change_ratio: float,
) -> list[Facts]:
    """What is known of each, to decide by."""
    relids = sorted({source.relid for job in jobs for source in read[job.table.id]})
    sizes = _sizes(conn, relids)
    pending = buffers.pending(slices(jobs, read))
    recompute_reason = {job.table.id: job.whole for job in jobs}
    recompute_reason |= {id: why for id, found in changes.items() if (why := definition_digests.reason(found))}
    return [
        _facts(job, read[job.table.id], pending, sizes, recompute_reason.get(job.table.id, ""), max_change_ratio)
        for job in jobs
    ]


def slices(jobs: Sequence[Job], read: Read) -> list[Pair]:
    """What jobs read of the buffers: each source, from where the stream table has come."""
    return [(source.relid, job.table.frontier) for job in jobs if job.table.frontier for source in read[job.table.id]]


def _facts(
    job: Job,
    read: Sequence[sources.Source],
    pending: Mapping[Pair, Pending],
    sizes: dict[int, float],
    recompute_reason: str,
    max_change_ratio: float,
) -> Facts:
    found = []
    for source in read if job.table.frontier else ():
        assert job.table.frontier is not None
        one = pending[source.relid, job.table.frontier]
        name = f"{source.schema}.{source.name}"
        found.append(SourceFacts(name, one.rows, sizes.get(source.relid, 0.0), one.truncated, one.changed))
    populated = job.table.frontier is not None
    before = job.table.data_timestamp is not None
    return Facts(
        populated, job.table.refresh_mode, tuple(found), job.full, max_change_ratio, recompute_reason, before, job.clock
    )


def _sizes(conn: Connection, relids: Sequence[int]) -> dict[int, float]:
    """PostgreSQL's estimates."""
    rows = conn.execute(
        "SELECT oid::int8, greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = ANY(%s::oid[])", (list(relids),)
    )
    return {row[0]: row[1] for row in rows}
