"""The verb verify: compare a stream table with its query, also under load.

A refresh brings the table to a new cut. Before the cut's transaction ends, the defining query runs
in it, at the same snapshot, and both are subtracted from each other. The refresh hides no earlier
error, since a differential refresh does not change rows that were wrong before.

The result is recorded: when each stream table was last verified, and some of the rows that differ,
with an alert.
"""

from __future__ import annotations

from millstream.catalog import verifications
from millstream.catalog.stream_tables import StreamTable
from millstream.catalog.verifications import Evidence
from millstream.compiler.server.total_order import with_total_order
from millstream.postgres import notifications
from millstream.postgres.composed import Printed
from millstream.postgres.connection import Connection
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.service.app import App
from millstream.service.refresh import refresh
from millstream.service.verb import verb
from millstream.service.verification.compare import (
    ComparedColumns,
    Difference,
    chooses,
    compare,
    rounded_columns,
)
from millstream.service.verification.verification import Verification


@verb
def verify(app: App, name: str) -> Verification:
    """Refresh, and compare at the same snapshot."""
    table = app.named(name)
    seen, id = list[Verification](), table.id
    # The comparison needs the plan, even if nothing has changed.
    app.plan(table)

    def witness(now: Cut, job: Job, report: RefreshReport) -> None:
        # Its upstreams are refreshed with it.
        if job.table.id == id:
            seen.append(compared(now.conn, job, report))

    former, app.witness = app.witness, witness
    try:
        refresh(app, name)
    finally:
        app.witness = former
    record(app, table, seen[-1])
    return seen[-1]


def record(app: App, table: StreamTable, verification: Verification) -> None:
    """Record the result of a comparison; store differences as evidence, and send an alert."""
    with app.conn.transaction():
        if app.epoch is not None:
            app.epoch.hold(app.conn)
        verifications.record(app.conn, table.id, ok=verification.ok)
        if verification.ok:
            return
        verifications.add_evidence(
            app.conn,
            Evidence(
                table.id, verification.frontier, verification.data_timestamp, verification.missing,
                verification.extra, verification.sample,
            ),
        )  # fmt: skip
        notifications.alert(
            app.conn, "verification_failed", stream_table=table.qualified, missing=verification.missing,
            extra=verification.extra, data_timestamp=verification.data_timestamp.isoformat(),
            hint="Some of the rows are in millstream.verification_failures. "
            f"Correct them with: millstream refresh --full {table.typed}",
        )  # fmt: skip


def compared(conn: Connection, job: Job, report: RefreshReport) -> Verification:
    """Compare, in the transaction of the cut."""
    rounded = rounded_columns(job.blocks)
    columns = [output.column for output in job.block.outputs]
    query = Printed(with_total_order(job.table.canonical_query, columns))
    compared_columns = ComparedColumns(columns, rounded, chooses(job.blocks))
    found: Difference = compare(conn, query, job.names.target, compared_columns)
    ok = found.missing == 0 and found.extra == 0
    return Verification(
        job.table.name,
        ok,
        found.rows,
        found.missing,
        found.extra,
        found.sample,
        report.frontier,
        report.data_timestamp,
        rounded,
    )
