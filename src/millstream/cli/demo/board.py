"""What the demo has seen so far: the numbers that its live view and its plain lines print."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from millstream.bundled.shop import Count
from millstream.cli.demo.story import CHAPTERS, Chapter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.refresh.report import RefreshReport

# So many times fit under a stream table's name.
REMEMBERED = 18


@dataclass
class BoardLine:
    """One stream table's numbers."""

    chapter: Chapter
    last: RefreshReport | None = None
    refreshes: int = 0
    changes: int = 0
    rows_read: int = 0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def note(self, report: RefreshReport) -> None:
        """Take in a refresh; one that found nothing to do is no news, except that the data is as fresh."""
        self.last = report
        self.refreshes += 1
        self.changes += changes_in(report)
        self.rows_read += report.rows_read
        self.times.append(report.duration_ms)

    def lag(self, now: datetime) -> float | None:
        """How old the data of the stream table is, in seconds."""
        return None if self.last is None else max(0.0, (now - self.last.data_timestamp).total_seconds())


@dataclass
class Board:
    """All numbers of the demo."""

    traffic: Callable[[], Count]
    sizes: Mapping[str, int]
    lines: dict[str, BoardLine] = field(default_factory=lambda: {one.name: BoardLine(one) for one in CHAPTERS})
    peek: list[tuple[str, int, Decimal]] = field(default_factory=list)
    modes: dict[str, str] = field(default_factory=dict)
    """By source: how its changes are captured now."""
    trouble: str = ""
    seconds: float = 0.0
    length: float | None = None

    def note(self, report: RefreshReport) -> None:
        """Take in a refresh of one of our stream tables."""
        self.lines[report.name.rpartition(".")[2]].note(report)

    def source_rows(self, line: BoardLine) -> int:
        """How many rows the sources of a stream table held when the shop opened."""
        return sum(self.sizes[source] for source in line.chapter.sources)

    def read_anew(self) -> int:
        """The rows that would have been read, had each refresh computed its query anew."""
        return sum(line.refreshes * self.source_rows(line) for line in self.lines.values())


def changes_in(report: RefreshReport) -> int:
    """How many changes a refresh took in, over all its inputs."""
    return sum(one.rows for one in report.inputs if one.path == "changes")


def now() -> datetime:
    """This moment, comparable with a report's `data_timestamp`."""
    return datetime.now(UTC)
