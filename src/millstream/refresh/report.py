"""The report of a refresh: what it did and what it cost, by input and by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from millstream.catalog.upstreams import OlderUpstream
from millstream.frontier.snapshot import Snapshot

Action = Literal["NO_DATA", "DIFFERENTIAL", "FULL", "REINITIALIZE", "SKIP"]
Path = Literal["changes", "lookup", "filter", "read", "scan", "step"]


@dataclass(frozen=True)
class InputReport:
    """How one input was read.

    changes  its slice of the change buffer      read   all of it, by the driver (small)
    lookup   rows by key, through an index       scan   all of it, by Spark's tasks (large)
    filter   rows by key, PostgreSQL scanning     step   what the last step of a recursion found
    """

    alias: str
    table: str
    path: Path
    rows: int
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "alias": self.alias,
            "table": self.table,
            "path": self.path,
            "rows": self.rows,
            "why": self.why,
        }


@dataclass(frozen=True)
class RefreshReport:
    """One refresh of one stream table, as it was executed."""

    name: str
    action: Action
    reason: str
    data_timestamp: datetime
    frontier: Snapshot
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    duration_ms: float = 0.0
    spark_jobs: int = 0
    inputs: tuple[InputReport, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    initiated_by: Literal["SCHEDULER", "MANUAL", "INITIAL"] = "MANUAL"
    held_back_by: tuple[OlderUpstream, ...] = ()
    """Stream tables that it reads and that were not refreshed with it: its data is as old as
    theirs.
    """
    notices: tuple[str, ...] = ()
    """What its owner should know: at creation, which sources stay on triggers and the statement
    that changes it, and whose row-level security does not apply.
    """

    @property
    def rows_read(self) -> int:
        """All rows that left PostgreSQL for this refresh."""
        return sum(one.rows for one in self.inputs)

    @property
    def rows_changed(self) -> int:
        return self.rows_inserted + self.rows_updated + self.rows_deleted

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> RefreshReport:
        """Read what `as_dict` has written; the answer of a service is one."""
        given = {name: value for name, value in document.items() if name != "rows_read"}
        given["data_timestamp"] = datetime.fromisoformat(given["data_timestamp"])
        given["frontier"] = Snapshot.parse(given["frontier"])
        given["inputs"] = tuple(InputReport(**one) for one in given["inputs"])
        given["held_back_by"] = tuple(map(OlderUpstream.from_dict, given["held_back_by"]))
        given["notices"] = tuple(given["notices"])
        return cls(**given)

    def as_dict(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        return {
            "name": self.name, "action": self.action, "reason": self.reason, "rows_read": self.rows_read,
            "rows_inserted": self.rows_inserted, "rows_updated": self.rows_updated, "rows_deleted": self.rows_deleted,
            "duration_ms": round(self.duration_ms, 3), "data_timestamp": self.data_timestamp.isoformat(),
            "frontier": str(self.frontier), "spark_jobs": self.spark_jobs, "initiated_by": self.initiated_by,
            "held_back_by": [one.as_dict() for one in self.held_back_by],
            "inputs": [one.as_dict() for one in self.inputs],
            "phases": {name: round(ms, 3) for name, ms in self.phases.items()}, "notices": list(self.notices),
        }  # fmt: skip


class Tally:
    """Gathers the numbers of a refresh while it runs."""

    def __init__(self) -> None:
        self.inputs: list[InputReport] = []
        self.phases: dict[str, float] = {}
        self.spark_jobs = 0
        self.changed = {"I": 0, "U": 0, "D": 0}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the time of a phase; several times are added up."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + (time.perf_counter() - started) * 1000
