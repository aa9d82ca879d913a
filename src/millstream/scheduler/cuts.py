"""Choose which jobs share a cut, and the order of the cuts.

A graph of stream tables that read each other is refreshed in one cut, so that all its rows are of
one moment. Independent graphs share a cut as long as the server's lock table has room for them (see
`refresh.batches`).

A stream table with triggers, of the user or of a foreign key, gets a cut of its own. Such a trigger
may write to a source in the transaction of the cut. A reader of that source in the same cut would
then see the rows in this cut, and again in its next slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.errors import LockTableFull
from millstream.postgres import lock_table
from millstream.postgres.connection import Connection
from millstream.refresh.batches import Batches, Graph, batches, graphs
from millstream.refresh.job import Job
from millstream.scheduler.context import SchedulerContext

# If all due jobs fit into this part of Millstream's share of an empty lock table, the locks of
# other sessions are not counted.
FEW_LOCKS = 0.25


def choose_cuts(context: SchedulerContext, jobs: Sequence[Job]) -> Batches:
    """Return the cuts in order: first those that graphs share, then those of single stream tables."""
    triggered = _with_triggers(context.conn, jobs)
    shared, apart = list[Graph](), list[Graph]()
    for graph in graphs(upstreams_first(jobs)):
        has_triggers = any(job.table.relid in triggered for job in graph)
        (apart if has_triggers else shared).append(graph)
    chosen = _fill_cuts(context, shared)
    own_cuts = tuple((part,) for graph in apart for part in split_at_triggers(graph, triggered))
    return replace(chosen, cuts=chosen.cuts + own_cuts)


def upstreams_first(jobs: Sequence[Job]) -> list[Job]:
    """Sort the jobs so that each follows its upstreams. In a cycle, keep their order."""
    ordered = list[Job]()
    waiting = list(jobs)
    while waiting:
        ids = {job.table.id for job in waiting}
        ready = [job for job in waiting if not job.upstreams & (ids - {job.table.id})] or waiting
        ordered += ready
        ready_ids = {job.table.id for job in ready}
        waiting = [job for job in waiting if job.table.id not in ready_ids]
    return ordered


def split_at_triggers(graph: Graph, triggered: set[int]) -> list[list[Job]]:
    """Split a graph into parts that are refreshed one after the other; each stream table with
    triggers is a part of its own.
    """
    parts = list[list[Job]]()
    begin_part = True
    for job in graph:
        has_triggers = job.table.relid in triggered
        if begin_part or has_triggers:
            parts.append([])
        parts[-1].append(job)
        begin_part = has_triggers
    return parts


def refuse_too_large(
    context: SchedulerContext, too_large: Sequence[tuple[Graph, int]]
) -> dict[int, LockTableFull]:
    """Return the error of each stream table whose graph needs more locks than the server's lock
    table has room for.
    """
    if not too_large:
        return {}
    share = context.settings.max_lock_share
    table = lock_table.read(context.conn)
    errors = dict[int, LockTableFull]()
    for graph, locks in too_large:
        for job in graph:
            names = [job.table.name, *(other.table.name for other in graph if other is not job)]
            setting = table.setting_for(locks, share)
            errors[job.table.id] = LockTableFull.by_graph(
                names, locks, table.room(share), table.per_transaction, setting
            )
    return errors


def _fill_cuts(context: SchedulerContext, found: Sequence[Graph]) -> Batches:
    footprints = context.footprints.of(context.conn, [job for graph in found for job in graph])
    share = context.settings.max_lock_share
    chosen = batches(found, footprints, lock_table.empty(context.conn).room(share * FEW_LOCKS))
    if len(chosen.cuts) <= 1 and not chosen.too_large:
        return chosen
    return batches(found, footprints, lock_table.read(context.conn).room(share))


def _with_triggers(conn: Connection, jobs: Sequence[Job]) -> set[int]:
    """Return the oids of the stream tables with triggers other than Millstream's."""
    query = (
        "SELECT DISTINCT tgrelid::int8 FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid "
        "WHERE tgrelid = ANY(%s::oid[]) AND p.pronamespace <> 'millstream_changes'::regnamespace"
    )
    relids = [job.table.relid for job in jobs if job.table.relid]
    return {relid for (relid,) in conn.execute(query, (relids,))}
