"""The verb adopt: make a catalog that was restored or copied into this database work here.

    examine    find every table by its recorded name, compare shape and mark, plan every query      changes nothing
    rewrite    oids, a new installation id, the identity; drop restored capture triggers             one transaction
    capture    set up triggers on each source                                                        one after the other
    fill       refresh every stream table, by difference from its restored rows                      as a refresh does

Stream tables that cannot be adopted are listed with the reason, and nothing is adopted until they
are repaired or named in `forget`, which keeps their tables as ordinary tables. A process that is
killed leaves the catalog either unchanged or rewritten; adopting again continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.capture.trigger import triggers
from millstream.catalog import sources, stream_tables
from millstream.catalog.definitions import definition_digests
from millstream.catalog.installation import adoption, identity, install
from millstream.catalog.stream_tables import StreamTable
from millstream.catalog.target import target_shape, targets
from millstream.errors import Busy, MillstreamError, NotAdopted, OtherDatabase
from millstream.observe import log
from millstream.observe.failpoint import failpoint
from millstream.postgres import relations
from millstream.postgres.table_locks import under_lock
from millstream.refresh.report import RefreshReport
from millstream.service import block_tables
from millstream.service.app import App
from millstream.service.refresh import refresh
from millstream.service.verb import verb_anywhere


@dataclass(frozen=True)
class Adoption:
    """What was adopted, or would be."""

    adopted: tuple[str, ...]
    forgotten: tuple[str, ...] = ()
    unresolved: tuple[tuple[str, str], ...] = ()
    """Names of stream tables, each with the reason; empty but for a dry run."""
    reports: tuple[RefreshReport, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        unresolved = [{"name": name, "reason": reason} for name, reason in self.unresolved]
        return {
            "adopted": list(self.adopted),
            "forgotten": list(self.forgotten),
            "unresolved": unresolved,
        }


@verb_anywhere
def adopt(app: App, *, forget: Sequence[str] = (), dry_run: bool = False) -> Adoption:
    """Adopt the catalog; with `dry_run`, only say what would be adopted and what could not be."""
    with app.mutex.exclusive("transitions") as is_ours:
        if not is_ours:
            raise Busy.adopting(app.mutex.holder("transitions"))
        if not _is_foreign(app):
            return Adoption(()) if dry_run else _complete(app, ())
        unresolved = _examined(app, forget)
        names = [table.qualified for table in stream_tables.every(app.conn)]
        forgotten = tuple(stream_tables.named(app.conn, name).qualified for name in forget)
        adopted = tuple(
            name for name in names if name not in forgotten and name not in dict(unresolved)
        )
        failpoint("adopt_examined")
        if dry_run:
            return Adoption(adopted, forgotten, unresolved)
        if unresolved:
            raise NotAdopted.listing(unresolved)
        _rewrite(app, forget)
        return Adoption(adopted, forgotten, reports=_complete(app, adopted).reports)


def _is_foreign(app: App) -> bool:
    try:
        identity.check(app.conn)
    except OtherDatabase:
        return True
    return False


# -- examine ---------------------------------------------------------------------------------


def _examined(app: App, forget: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the stream tables that cannot be adopted, each with the reason.

    All changes of this function are rolled back.
    """
    with app.conn.transaction(force_rollback=True):
        _forget(app, forget)
        absent = adoption.missing_objects(app.conn)
        adoption.rewrite_oids(app.conn)
        tables = stream_tables.every(app.conn)
        reasons = {
            table.qualified: absent.get(table.id) or _objection(app, table) for table in tables
        }
    for table in tables:
        app.forget(table.id)
    return tuple((name, reason) for name, reason in reasons.items() if reason)


def _objection(app: App, table: StreamTable) -> str:
    """Return why the table of that name is not the stream table's, or why its query is no longer
    valid; "" otherwise.
    """
    [target] = targets.inspect(app.conn, [table.id])
    if target.state != "ours":
        error = targets.moved(app.conn, target, table.name)
        return f"{error.message}; {error.hint}"
    try:
        planned = app.plan(table)
        # The recorded digests are those of the other database, so they cannot tell which of the two
        # was altered.
        target_shape.refuse_other_types(
            app.conn, table.name, table.relid or 0, planned.canonical.columns
        )
    except MillstreamError as error:
        return f"{error.message}: {error.detail.rstrip('.')}" if error.detail else error.message
    wanted: definition_digests.Digests = (
        {("target", table.relid or 0): table.row_key.indexed()} if table.row_key else {}
    )
    return (
        "its unique index is gone"
        if definition_digests.changed_definitions(app.conn, {table.id: wanted})
        else ""
    )


def _forget(app: App, names: Sequence[str]) -> None:
    """Remove the catalog rows and the state of these stream tables, but not their tables."""
    for name in names:
        table = stream_tables.named(app.conn, name)
        block_tables.drop(app.conn, table)
        stream_tables.remove(app.conn, table.id)
    if names:
        for source in sources.unread(app.conn):
            sources.remove(app.conn, source.relid)


# -- rewrite ---------------------------------------------------------------------------------


def _rewrite(app: App, forget: Sequence[str]) -> None:
    def work() -> None:
        _forget(app, forget)
        adoption.rewrite_oids(app.conn)
        failpoint("adopt_resolved")
        adoption.take_over(app.conn)
        failpoint("adopt_rewritten")

    tables = relations.alterable(app.conn, install.captured(app.conn))
    under_lock(app.conn, tables, "ACCESS EXCLUSIVE", work)
    log.info("adopted", stream_tables=len(stream_tables.every(app.conn)))
    failpoint("adopt_committed")


# -- capture and fill ------------------------------------------------------------------------


def _complete(app: App, adopted: tuple[str, ...]) -> Adoption:
    """Set up capture of the sources without it, and refresh the stream tables that are not
    populated; there may be none.
    """
    for source in sources.every(app.conn):
        if not source.columns:
            app.progress(f"capturing changes of {source.name}", None)
            triggers.install(
                app.conn,
                relations.table(app.conn, source.relid),
                sources.needed_columns(app.conn, source.relid),
            )
            failpoint("adopt_captured")
    empty = [
        table
        for table in stream_tables.every(app.conn)
        if table.frontier is None and table.status != "SUSPENDED"
    ]
    reports = []
    for table in empty:
        app.progress(f"filling {table.name}", None)
        if stream_tables.get(app.conn, table.id).frontier is None:
            reports.append(refresh(app, table.qualified))
            failpoint("adopt_filled")
    return Adoption(adopted or tuple(table.qualified for table in empty), reports=tuple(reports))
