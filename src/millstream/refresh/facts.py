"""Gather the facts that `decide.py` decides by: what waits for stream tables at the cut, asked for all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.capture import buffer
from millstream.catalog import grounds, sources
from millstream.catalog.grounds import Change
from millstream.refresh.decide import Facts, SourceFacts
from millstream.refresh.job import Job, Read
from millstream.store.connection import Connection


def facts_of(
    conn: Connection, jobs: Sequence[Job], read: Read, changes: Mapping[int, Sequence[Change]], max_change_ratio: float
) -> list[Facts]:
    """What is known of each, to decide by."""
    relids = sorted({source.relid for job in jobs for source in read[job.table.id]})
    sizes = _sizes(conn, relids)
    pairs = [(s.relid, job.table.frontier) for job in jobs if job.table.frontier for s in read[job.table.id]]
    pending = {(one.relid, str(one.frontier)): one for one in buffer.pending(conn, pairs)}
    moved = {id: grounds.reason(found) for id, found in changes.items()}
    return [
        _facts(job, read[job.table.id], pending, sizes, moved.get(job.table.id, ""), max_change_ratio) for job in jobs
    ]


def _facts(
    job: Job,
    read: Sequence[sources.Source],
    pending: dict[tuple[int, str], buffer.Pending],
    sizes: dict[int, float],
    moved: str,
    max_change_ratio: float,
) -> Facts:
    found = []
    for source in read if job.table.frontier else ():
        one = pending[source.relid, str(job.table.frontier)]
        name = f"{source.schema}.{source.name}"
        found.append(SourceFacts(name, one.rows, sizes.get(source.relid, 0.0), one.truncated, one.changed))
    populated = job.table.frontier is not None
    before = job.table.data_timestamp is not None
    return Facts(populated, job.table.refresh_mode, tuple(found), job.full, max_change_ratio, moved, before, job.clock)


def _sizes(conn: Connection, relids: Sequence[int]) -> dict[int, float]:
    """PostgreSQL's estimates."""
    rows = conn.execute(
        "SELECT oid::int8, greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = ANY(%s::oid[])", (list(relids),)
    )
    return {row[0]: row[1] for row in rows}
