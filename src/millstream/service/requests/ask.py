"""Ask a running service, and wait for its answer, as commands do if a service runs.

The methods are those of the Python API that the service can execute, with the same results. Neither
Spark nor the planner is imported here, so that an answer takes well under a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from millstream.catalog import history, requests, stream_tables
from millstream.catalog.history import HistoryEntry
from millstream.catalog.installation import install
from millstream.catalog.requests import Document
from millstream.errors import MillstreamError, NotInstalled, RequestNotDone, ServerDown, of_code
from millstream.postgres import session_settings
from millstream.postgres.connection import Connection, session, users_path
from millstream.postgres.failures import translate_error
from millstream.refresh.report import RefreshReport
from millstream.service.verification.verification import Verification

# Seconds between two polls for the answer: the first, and the longest.
FIRST_LOOK, LAST_LOOK = 0.004, 0.1
# Seconds without a service before the wait ends: a standby takes over sooner.
PATIENCE = 20.0
# Requests that are read with the settings of the session that asks.
_DEFINING = ("create", "alter")


@dataclass(frozen=True)
class ListedTable:
    """A stream table by its name."""

    schema: str
    name: str


class ServiceClient:
    """A session that asks the service. Use it from one thread at a time."""

    def __init__(
        self, conn: Connection, patience: float = PATIENCE, dsn: str | None = None
    ) -> None:
        self.conn = conn
        self.patience = patience
        self.dsn = dsn
        """Where the user's own session settings are asked for; None for those of `conn`."""

    def create_stream_table(
        self,
        name: str,
        query: str,
        schedule: str = "1m",
        refresh_mode: str = "AUTO",
        initialize: bool = True,
        cdc_mode: str | None = None,
        owner: str | None = None,
        settings: Mapping[str, str] | None = None,
        assume_immutable: Sequence[str] | None = None,
    ) -> RefreshReport | None:
        """Create a stream table over a query and populate it; None if `initialize` is off."""
        arguments = {
            "query": query, "schedule": schedule, "refresh_mode": refresh_mode, "initialize": initialize,
            "cdc_mode": cdc_mode, "owner": owner, "settings": settings,
            "assume_immutable": assume_immutable,
        }  # fmt: skip
        report = self._ask("create", name, arguments)["report"]
        return RefreshReport.from_dict(report) if report else None

    def alter_stream_table(
        self,
        name: str,
        *,
        schedule: str | None = None,
        refresh_mode: str | None = None,
        status: str | None = None,
        query: str | None = None,
        cdc_mode: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> RefreshReport | None:
        """Change the given properties; return the report of the refresh if the query is changed."""
        arguments = {
            "schedule": schedule, "refresh_mode": refresh_mode, "status": status, "query": query, "cdc_mode": cdc_mode,
            "settings": settings,
        }  # fmt: skip
        report = self._ask("alter", name, arguments)["report"]
        return RefreshReport.from_dict(report) if report else None

    def drop_stream_table(self, name: str, cascade: bool = False) -> None:
        """Drop a stream table; with `cascade`, what depends on its table too."""
        self._ask("drop", name, {"cascade": cascade})

    def refresh(self, name: str, *, full: bool = False) -> RefreshReport:
        """Refresh one stream table now; `full` recomputes it and applies the difference."""
        return RefreshReport.from_dict(self._ask("refresh", name, {"full": full}))

    def verify(self, name: str) -> Verification:
        """Compare a stream table with its query, at one snapshot."""
        return Verification.from_dict(self._ask("verify", name, {}))

    def status(self) -> Sequence[ListedTable]:
        """Return all stream tables, ordered by name."""
        return [
            ListedTable(table.schema_name, table.name) for table in stream_tables.every(self.conn)
        ]

    def history(self, name: str, n: int = 20) -> list[HistoryEntry]:
        """Return the last refreshes, newest first."""
        return history.recent(self.conn, stream_tables.named(self.conn, name).id, n)

    def _ask(self, kind: str, name: str, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Send a request and wait; return the result, or raise the error that the service has
        answered.
        """
        try:
            # Names in the query are resolved along the user's search_path; those in the function
            # were resolved at installation.
            users = session_settings.of_user(self.dsn) if self.dsn and kind in _DEFINING else {}
            with users_path(self.conn), session_settings.under(self.conn, users):
                id_ = requests.send(self.conn, kind, name, arguments)
            return dict(self._wait(id_))
        except psycopg.Error as error:
            if self.conn.closed:
                raise ServerDown.lost(str(error)) from error
            raise translate_error(error) from error

    def _wait(self, id_: int) -> Document:
        pause, seen = FIRST_LOOK, time.monotonic()
        while True:
            answer = requests.look(self.conn, id_)
            if answer.result is not None:
                return answer.result
            if answer.error is not None:
                raise error_of(answer.error)
            if requests.service_is_running(self.conn):
                seen = time.monotonic()
            elif time.monotonic() - seen > self.patience:
                raise RequestNotDone.within(id_, self.patience, answer.status)
            time.sleep(pause)
            pause = min(pause * 1.5, LAST_LOOK)


def error_of(document: Document) -> MillstreamError:
    """Return the error in a service's answer, as an instance of its class."""
    kind = of_code(document["code"])
    told = {name: document.get(name, "") for name in ("message", "detail", "hint")}
    facts = {name: value for name, value in document.get("facts", {}).items() if name not in told}
    return kind(**told, **facts)


@contextmanager
def asking(dsn: str) -> Iterator[ServiceClient | None]:
    """Return a client of the database's service; None if no service runs, or the catalog must be
    upgraded.
    """
    with session(dsn) as conn:
        try:
            install.require(conn)
        except NotInstalled:
            yield None
            return
        yield ServiceClient(conn, dsn=dsn) if requests.service_is_running(conn) else None
