"""Gather the facts that `decide.py` decides by: the pending changes of stream tables at the cut.

One query per kind of fact answers for all stream tables of the cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.capture.buffer.slices import Pair, Pending
from millstream.catalog import sources
from millstream.catalog.definitions import definition_digests
from millstream.catalog.definitions.definition_digests import Change
from millstream.postgres.connection import Connection
from millstream.refresh.buffers import Buffers
from millstream.refresh.decide import Facts, SourceFacts
from millstream.refresh.job import Job, SourcesByTable


def facts_of(
    buffers: Buffers,
    jobs: Sequence[Job],
    read: SourcesByTable,
    changes: Mapping[int, Sequence[Change]],
    max_change_ratio: float,
) -> list[Facts]:
    """Return the facts of each job, in the order of the jobs."""
    relids = sorted({source.relid for job in jobs for source in read[job.table.id]})
    sizes = _estimated_rows(buffers.conn, relids)
    pending = buffers.pending(slices(jobs, read))
    return [
        Facts(
            populated=job.table.frontier is not None,
            mode=job.table.refresh_mode,
            sources=source_facts(job, read[job.table.id], pending, sizes),
            full_requested=job.full,
            max_change_ratio=max_change_ratio,
            recompute_reason=recompute_reason(job, changes.get(job.table.id, ())),
            filled_before=job.table.data_timestamp is not None,
            clock=job.clock,
        )
        for job in jobs
    ]


def slices(jobs: Sequence[Job], read: SourcesByTable) -> list[Pair]:
    """Return the slices that jobs read of the buffers: each source, after the frontier of the
    stream table.

    A stream table without a frontier reads its sources in full, and no slice.
    """
    return [
        (source.relid, job.table.frontier)
        for job in jobs
        if job.table.frontier
        for source in read[job.table.id]
    ]


def recompute_reason(job: Job, changes: Sequence[Change]) -> str:
    """Return the reason code of a recomputation: that of the changed definitions, else the job's;
    empty for none.
    """
    return definition_digests.reason(changes) or job.recompute_reason


def source_facts(
    job: Job,
    read: Sequence[sources.Source],
    pending: Mapping[Pair, Pending],
    sizes: Mapping[int, float],
) -> tuple[SourceFacts, ...]:
    """Return the facts of each source that a job reads; none if the stream table has no frontier."""
    if job.table.frontier is None:
        return ()
    facts = []
    for source in read:
        waiting = pending[source.relid, job.table.frontier]
        facts.append(
            SourceFacts(
                name=f"{source.schema}.{source.name}",
                changes=waiting.rows,
                rows=sizes.get(source.relid, 0.0),
                truncated=waiting.truncated,
                gap=waiting.gap,
            )
        )
    return tuple(facts)


def _estimated_rows(conn: Connection, relids: Sequence[int]) -> dict[int, float]:
    """Return PostgreSQL's estimate of the number of rows of each table."""
    rows = conn.execute(
        "SELECT oid::int8, greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = ANY(%s::oid[])",
        (list(relids),),
    )
    return {row[0]: row[1] for row in rows}
