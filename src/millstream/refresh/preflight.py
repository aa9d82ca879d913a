"""Pre-flight checks: is the cached plan still valid, and is every source fully captured?

A stream table that fails a check is put aside with an outcome; the others are refreshed:

    something under the query was replaced       a Gap: plan it again
    a source is not fully captured, or altered   a Gap: plan it again, and set capture up again
    code of an untrusted role would run          an error; the table waits until it is removed
    the owner may not read what the query reads  an error; the table waits until it may
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import Error as PostgresError
from psycopg import errors

from millstream.capture.trigger import inventory
from millstream.catalog import sources
from millstream.catalog.definitions import definition_digests, digest_cache, foreign_code, rights
from millstream.catalog.definitions.definition_digests import Change
from millstream.catalog.definitions.digest_cache import DigestCache
from millstream.catalog.target import targets, write_guard
from millstream.errors import LockNotHad, MillstreamError, SourceChanged, TargetDiffers, TargetMoved
from millstream.postgres import session_settings
from millstream.postgres.connection import Connection
from millstream.postgres.failures import failure_from
from millstream.refresh.job import Gap, Job, Outcome, SourcesByTable, relids_read
from millstream.settings import Settings
from millstream.store import target


def preflight(
    conn: Connection,
    memory: DigestCache,
    jobs: Sequence[Job],
    read: SourcesByTable,
    settings: Settings,
) -> tuple[dict[int, Outcome], dict[int, list[Change]]]:
    """Return the outcomes of the jobs that are put aside, and the changed definitions by stream
    table.

    A job that passed before, and whose version stamps are unchanged, is not checked again.
    """
    found = digest_cache.version_stamps(conn, {job.table.id: job.digests for job in jobs})
    new = [job for job in jobs if not memory.holds(job.table.id, job.digests, found[job.table.id])]
    changes = _changes(conn, new)
    aside = {
        job.table.id: why
        for job in new
        if (why := _unplanned(conn, job, changes.get(job.table.id, ())))
    }
    aside |= _check_guards(
        conn, [job for job in new if job.table.id not in aside], not settings.allow_direct_writes
    )
    aside |= _check_capture(conn, [job for job in new if job.table.id not in aside], read)
    aside |= _check_rights(
        conn, [job for job in new if job.table.id not in aside], settings.trusted_roles
    )
    for job in new:
        if job.table.id not in aside and job.table.id not in changes:
            memory.keep(job.table.id, job.digests, found[job.table.id])
    return aside, changes


def _changes(conn: Connection, jobs: Sequence[Job]) -> dict[int, list[Change]]:
    """Return by stream table the definitions that differ from its plan or its record; one query for
    all.
    """
    found = dict[int, list[Change]]()
    if not jobs:
        return found
    for one in definition_digests.changed_definitions(
        conn, {job.table.id: job.digests for job in jobs}
    ):
        found.setdefault(one.stream_table_id, []).append(one)
    return found


def _unplanned(conn: Connection, job: Job, changes: Sequence[Change]) -> Outcome | None:
    """Return why the plan cannot be carried out; None if it can."""
    planned_otherwise = {one.kind for one in changes if one.is_planned_otherwise}
    state = next((one.digest for one in changes if one.kind == "target"), None)
    if state == "renamed":
        return Gap((), f"{job.table.name} has been renamed", is_renamed=True)
    if state == "dropped":
        return TargetMoved.dropped(job.table.name)
    if state == "unmarked":
        return TargetMoved.unmarked(job.table.name, targets.statements(conn, job.table.id))
    if "target" in planned_otherwise and job.table.row_key:
        columns = ", ".join(job.table.row_key.indexed().split("\n"))
        return TargetDiffers.without_index(
            job.table.name, columns, target.index_sql(job.block, job.names).as_string()
        )
    if planned_otherwise:
        return Gap((), f"{', '.join(sorted(planned_otherwise))} replaced under {job.table.name}")
    return None


def _check_guards(conn: Connection, jobs: Sequence[Job], guarded: bool) -> dict[int, Outcome]:
    """Return a Gap for each stream table that lacks its write guard, or has one although the
    setting says none.
    """
    relids = {job.table.id: job.table.relid for job in jobs if job.table.relid}
    wrong = write_guard.broken_guards(conn, list(relids.values())) if relids else {}
    aside = dict[int, Outcome]()
    for job in jobs:
        found = wrong.get(relids.get(job.table.id, 0))
        if job.table.id in relids and (found is not None) == guarded:
            aside[job.table.id] = Gap(
                (), f"the guard of {job.table.name} is {found or 'there'}", guard=True
            )
    return aside


def _check_capture(
    conn: Connection, jobs: Sequence[Job], read: SourcesByTable
) -> dict[int, Outcome]:
    """Return a Gap for each job that reads a source whose capture is not complete, or that was
    altered.
    """
    if not jobs:
        return {}
    relids = sorted(set().union(*map(relids_read, jobs)))
    drifts = sources.drift_by_column(conn, relids)
    known = list({source.relid: source for job in jobs for source in read[job.table.id]}.values())
    lacking = {
        relid: "; ".join(found) for relid, found in inventory.gaps_of(conn, known).items() if found
    }
    gaps = {**lacking, **{relid: "; ".join(found.values()) for relid, found in drifts.items()}}
    aside = dict[int, Outcome]()
    for job in jobs:
        own = {relid: gaps[relid] for relid in sorted(relids_read(job)) if relid in gaps}
        own |= _uncaptured(job, read[job.table.id])
        if own:
            aside[job.table.id] = Gap(tuple(own), "; ".join(own.values()))
    return aside


# The class of SQLSTATEs for a query that names a missing or changed object.
_NO_SUCH_THING = "42"


def _check_rights(
    conn: Connection, jobs: Sequence[Job], trusted_roles: Sequence[str]
) -> dict[int, Outcome]:
    """Return an error for each job that would run code of untrusted roles, or whose owner may not
    read its sources.
    """
    relids = {job.table.id: job.table.relid or 0 for job in jobs}
    aside = dict[int, Outcome]()
    called = foreign_code.under(conn, {job.table.id: job.digests for job in jobs}, trusted_roles)
    written = foreign_code.on_tables(conn, list(relids.values()), trusted_roles)
    owners = rights.owners(conn, list(relids.values()))
    for job in jobs:
        id, name = job.table.id, job.table.name
        if id in called:
            aside[id] = foreign_code.refused(conn, name, called[id], on_table=False)
        elif relids[id] in written:
            aside[id] = foreign_code.refused(conn, name, written[relids[id]], on_table=True)
        elif error := _denied(conn, job, owners.get(relids[id])):
            aside[id] = error
    return aside


def _denied(conn: Connection, job: Job, owner: str | None) -> MillstreamError | None:
    """Return why the owner of a stream table may not run its query; None if it may."""
    try:
        with session_settings.under(conn, job.table.settings):
            rights.check(conn, job.table.canonical_query, owner or rights.current_role(conn))
    except MillstreamError as error:
        return error
    except errors.LockNotAvailable:
        return LockNotHad.by_reader("what the query reads")
    except PostgresError as error:
        if (error.sqlstate or "").startswith(_NO_SUCH_THING):
            said = error.diag.message_primary or str(error)
            return SourceChanged.query(job.table.name, f"{said[:1].upper()}{said[1:]}.")
        return failure_from(job.table.name, error)
    return None


def _uncaptured(job: Job, read: Sequence[sources.Source]) -> dict[int, str]:
    """Return the sources that are not recorded, or whose buffers lack a column that is read."""
    captured = {source.relid: {column.name for column in source.columns} for source in read}
    wanted = [(table.oid, input_.used()) for table, input_ in job.source_reads()]
    lacking = [oid for oid, used in wanted if oid not in captured or used - captured[oid]]
    return dict.fromkeys(lacking, "a column is not captured")
