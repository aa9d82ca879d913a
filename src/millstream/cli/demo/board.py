"""The figures of the demo, which its live view and its plain lines print."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from millstream.bundled.shop import Count
from millstream.cli.demo.story import CHAPTERS, Chapter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The number of times that fit under a stream table's name.
REMEMBERED = 18


@dataclass(frozen=True)
class Refresh:
    """A refresh by the service, as `millstream.get_refresh_history` returns it."""

    id: int
    action: str
    reason: str
    duration_ms: float
    rows_read: int
    rows_inserted: int
    rows_updated: int
    rows_deleted: int


@dataclass
class BoardLine:
    """The figures of one stream table."""

    chapter: Chapter
    last: Refresh | None = None
    refreshes: int = 0
    rows_read: int = 0
    staleness: float | None = None
    """The age of its rows in seconds: zero while no change waits."""
    times: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def note(self, refresh: Refresh) -> None:
        """Add a refresh."""
        self.last = refresh
        self.refreshes += 1
        self.rows_read += refresh.rows_read
        self.times.append(refresh.duration_ms)

    @property
    def last_id(self) -> int:
        """The id of the last refresh that was added."""
        return 0 if self.last is None else self.last.id


@dataclass
class Alteration:
    """A source that was altered during the traffic."""

    statement: str
    at: float
    """When the statement had ended, by the monotonic clock."""
    kept: str
    """The query of the stream table that reads it, as it was before."""
    last_id: int
    """The last refresh of that stream table which may have been before it."""
    followed_after: float | None = None
    """Seconds until that stream table was refreshed with the query as it is now."""

    @property
    def is_followed(self) -> bool:
        """True once the stream table that reads the source has followed the change."""
        return self.followed_after is not None


@dataclass
class Board:
    """All figures of the demo."""

    traffic: Callable[[], Count]
    sizes: Mapping[str, int]
    lines: dict[str, BoardLine] = field(
        default_factory=lambda: {one.name: BoardLine(one) for one in CHAPTERS}
    )
    peek: list[tuple[str, int, Decimal]] = field(default_factory=list)
    modes: dict[str, str] = field(default_factory=dict)
    """By source: how its changes are captured now."""
    alteration: Alteration | None = None
    trouble: str = ""
    seconds: float = 0.0
    length: float | None = None

    def source_rows(self, line: BoardLine) -> int:
        """Return the number of rows in the sources of a stream table when the shop opened."""
        return sum(self.sizes[source] for source in line.chapter.sources)

    def read_anew(self) -> int:
        """Return the number of rows that would have been read if each refresh ran its query in
        full.
        """
        return sum(line.refreshes * self.source_rows(line) for line in self.lines.values())
