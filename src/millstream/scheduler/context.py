"""What the scheduler needs of the application that it runs in."""

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
    """Connections, settings, plans, and what refreshes a cut."""

    footprints: Footprints
    journal: Journal
    epoch: Epoch | None
    """In a service: its leadership, without which nothing may be committed."""

    def plan(self, table: StreamTable) -> QueryPlan:
        """Return the plan of a stream table; plan it if its definition has changed."""

    def job(self, table: StreamTable, *, full: bool = False) -> Job:
        """Return what a refresh needs to know of a stream table."""

    def unplanned(self, tables: Sequence[StreamTable]) -> dict[int, Job]:
        """Return jobs without a plan for those that need none while nothing changes."""

    def forget(self, id_: int) -> None:
        """Discard what is cached of a stream table."""

    def refresher(self, known: Mapping[int, RefreshReport | MillstreamError]) -> Refresher:
        """Return what refreshes a cut; `known` are the outcomes of other stream tables."""

    def reach(self) -> None:
        """Connect again if the connection was lost."""
