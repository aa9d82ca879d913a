"""Shared by the applications of one process: plans, and the WAL reader.

The service refreshes several graphs at once, each in an application of its own, with its own
connections and Spark session. Only one of them at a time works on a stream table, not always the
same one, so they share cached plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from millstream.capture.wal.follower import Follower
from millstream.catalog.definitions.definition_digests import Digests
from millstream.compiler.server.plan_query import QueryPlan

Recorded: TypeAlias = tuple[Digests, frozenset[int], frozenset[int]]


@dataclass
class Shared:
    """Plans by id of the stream table. Each operation on them is atomic."""

    plans: dict[int, tuple[datetime, QueryPlan]] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    """Those whose blocks were found to keep what the plan asks for."""
    recorded: dict[int, Recorded] = field(default_factory=dict)
    """Of those that have not been planned: what they stand on, read, and which stream tables they
    read.
    """
    held: set[int] = field(default_factory=set)
    """The stream tables that one of the applications works on right now."""
    reader: Follower | None = None
    """The one that reads WAL in this process; the others wait for it."""

    def forget(self, id_: int) -> None:
        """Forget the plan of a stream table."""
        self.plans.pop(id_, None)
        self.kept.discard(id_)
        self.recorded.pop(id_, None)
