"""The interface of the application that the scheduler uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from millstream.capture.transition.context import TransitionContext
from millstream.catalog.journal import Journal
from millstream.catalog.processes.leadership import Epoch
from millstream.catalog.stream_tables import StreamTable
from millstream.compiler.server.plan_query import QueryPlan
from millstream.errors import MillstreamError
from millstream.refresh.batches import Footprints
from millstream.refresh.job import Job
from millstream.refresh.refresher import Refresher
from millstream.refresh.report import RefreshReport


class SchedulerContext(TransitionContext, Protocol):
    """Connections, settings, plans, and the refresher."""

    footprints: Footprints
    journal: Journal
    epoch: Epoch | None
    """In a service: its leadership, without which nothing may be committed."""

    def plan(self, table: StreamTable) -> QueryPlan:
        """Return the plan of a stream table; plan it if its definition has changed."""

    def job(self, table: StreamTable, *, full: bool = False) -> Job:
        """Return the job for a stream table, the input of a refresh."""

    def unplanned(self, tables: Sequence[StreamTable]) -> dict[int, Job]:
        """Return jobs without a plan, for stream tables that need one only if a source has changed."""

    def forget(self, id_: int) -> None:
        """Remove a stream table from the caches."""

    def refresher(self, known: Mapping[int, RefreshReport | MillstreamError]) -> Refresher:
        """Return a refresher; `known` are the outcomes of other stream tables."""

    def reach(self) -> None:
        """Connect again if the connection was lost."""
