"""Execute the decision for one stream table: evaluate and apply its blocks in order.

One choice is made here: if only the clock has moved, and no row with it, there was nothing to do.
"""

from __future__ import annotations

import time
from typing import Protocol

from millstream.algebra.block import Block, RecursionBlock
from millstream.catalog.definitions import definition_digests
from millstream.catalog.history import Initiator
from millstream.errors import TargetMoved
from millstream.frontier.snapshot import Slice
from millstream.postgres import session_settings
from millstream.postgres.connection import Connection
from millstream.refresh.apply.merge import Apply
from millstream.refresh.apply.record import initiator, record, record_idle
from millstream.refresh.cut import Cut
from millstream.refresh.decide import Decision
from millstream.refresh.evaluate import Evaluation
from millstream.refresh.job import Job, relids_read
from millstream.refresh.reads.access_paths import AccessPaths
from millstream.refresh.reads.single_rows import SingleRowVersions
from millstream.refresh.recursion import RecursionRefresh
from millstream.refresh.report import RefreshReport
from millstream.settings import Settings
from millstream.spark.engine import Engine


class Means(Protocol):
    """What a refresh needs of the application: a connection, Spark if needed, and limits."""

    conn: Connection
    dsn: str
    settings: Settings

    def engine(self) -> Engine: ...


def carry_out(
    means: Means,
    now: Cut,
    job: Job,
    decision: Decision,
    initiated_by: Initiator,
    *,
    consolidated: bool = False,
) -> RefreshReport:
    """Evaluate and apply the blocks one after the other, then record frontier and history.

    `consolidated`: images that cancel are removed before anything is computed.
    """
    started = time.perf_counter()
    since = job.table.cut_at if decision.action == "DIFFERENTIAL" else None
    versions = SingleRowVersions(now, job.names, since)
    access = AccessPaths(now, job.names, means, versions, consolidated=consolidated)
    access.settings = job.table.settings
    tally = access.tally
    with session_settings.under(means.conn, job.table.settings):
        changes = [_carry_out_block(means, job, block, access, decision) for block in job.blocks]
    changed = any(changes)
    _check_target(means.conn, job)
    if decision.reason == "CLOCK" and not changed:
        return record_idle(means.conn, now, [job], initiated_by)[job.table.id]
    report = RefreshReport(
        job.table.name, decision.action, decision.reason, now.taken_at, now.frontier(relids_read(job)),
        tally.changed["I"], tally.changed["U"], tally.changed["D"],
        (time.perf_counter() - started) * 1000, tally.spark_jobs, tuple(tally.inputs), tally.phases,
        initiator(job, initiated_by), now.behind.get(job.table.id, ()),
    )  # fmt: skip
    recorded = record(means.conn, now, job, report)
    if decision.action != "DIFFERENTIAL":
        definition_digests.record(means.conn, job.table.id, job.digests)
    return recorded


def _carry_out_block(
    means: Means, job: Job, block: Block, access: AccessPaths, decision: Decision
) -> bool:
    """Evaluate and apply a block; return False if nothing that it reads has changed."""
    if isinstance(block, RecursionBlock):
        _recurse(means, job, block, access, decision)
        return True
    evaluation = Evaluation(block, means.engine, access, access.tally)
    apply = Apply(means.conn, job, block, access.tally)
    if decision.action != "DIFFERENTIAL":
        apply.whole(evaluation.everything(), evaluation)
        return True
    assert job.table.frontier is not None
    slice_ = Slice(job.table.frontier, access.cut.snapshot)
    rows = evaluation.changes(slice_.start)
    apply.difference(rows, evaluation)
    return rows is not None


def _check_target(conn: Connection, job: Job) -> None:
    """Check that the locked table is the stream table's own, and not another table of its name."""
    row = conn.execute("SELECT to_regclass(%s)::oid::int8", (job.table.qualified,)).fetchone()
    if job.table.relid and (row is None or row[0] != job.table.relid):
        raise TargetMoved.renamed(job.table.name)


def _recurse(
    means: Means, job: Job, block: RecursionBlock, access: AccessPaths, decision: Decision
) -> None:
    evaluations = [
        Evaluation(term.block, means.engine, access, access.tally) for term in block.terms
    ]
    names = job.names.at(block.position)
    recursion = RecursionRefresh(
        block, names, evaluations, access, means.settings.max_recursion_steps
    )
    if decision.action == "DIFFERENTIAL":
        assert job.table.frontier is not None
        recursion.difference(job.table.frontier)
    else:
        recursion.whole()
