"""Decide what a refresh does: a pure function of facts, whose result is printed and logged.

`reasons.py` says what each reason code means. The first rule that holds decides:

    never filled, but filled under another plan    REINITIALIZE   PLANNED_ANEW, or the reason of the recomputation
    never filled                                   FULL           INITIAL
    a full refresh was requested                   FULL           REQUESTED
    a source was truncated                         REINITIALIZE   SOURCE_TRUNCATED
    something under the query was replaced         REINITIALIZE   SOURCE_REPLACED, VIEW_REPLACED, UNGUARDED, ...
    a source was not captured whole                REINITIALIZE   LOG_LOST, CAPTURE_GAP, PARTITIONS_CHANGED, ...
    no changes are pending, no clock is read       NO_DATA        NO_CHANGE
    the refresh mode is FULL                       FULL           MODE_FULL
    no changes are pending, the clock is read      DIFFERENTIAL   CLOCK
    mode AUTO, and too large a share has changed   FULL           CHANGE_RATIO
    otherwise                                      DIFFERENTIAL   CHANGED

A refresh for CLOCK ends as NO_DATA if no row crossed a temporal filter since the last one.

>>> orders = SourceFacts("public.orders", changes=12, rows=1000.0)
>>> print(decide(Facts(populated=True, mode="AUTO", sources=(orders,))))
DIFFERENTIAL (CHANGED)
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.capture.buffer.slices import GAPS
from millstream.refresh.reasons import REASONS
from millstream.refresh.report import Action

# A differential refresh of no more changes than this is cheap, whatever the size of the table.
_FEW_CHANGES = 5_000


@dataclass(frozen=True)
class SourceFacts:
    """What is known of one source at the cut."""

    name: str
    changes: int
    """The pending changes, counted up to a cap."""
    rows: float
    """PostgreSQL's estimate of the table's size; 0 if it has none."""
    truncated: bool = False
    gap: str = ""
    """The reason code if its changes were not all captured."""

    @property
    def changed_share(self) -> float:
        """The pending changes as a share of the table's rows; 0 if its size is unknown."""
        return self.changes / self.rows if self.rows > 0 else 0.0


@dataclass(frozen=True)
class Facts:
    """What is known of a stream table at the cut."""

    populated: bool
    mode: str
    sources: tuple[SourceFacts, ...]
    full_requested: bool = False
    max_change_ratio: float = 0.15
    recompute_reason: str = ""
    """The reason code if something under the query, other than rows, has changed since the rows
    were computed.
    """
    filled_before: bool = False
    """The table had rows, and starts over with another plan."""
    clock: bool = False
    """The query reads the current time."""


@dataclass(frozen=True)
class Decision:
    """The action of a refresh, and its reason code."""

    action: Action
    reason: str
    detail: str = ""

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"unknown reason code {self.reason}")

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.action} ({self.reason}{detail})"


def decide(facts: Facts) -> Decision:
    """Return the decision of the first rule that holds."""
    return _without_rows(facts) or _stored_rows_invalid(facts) or _by_changes(facts)


def _without_rows(facts: Facts) -> Decision | None:
    """Return how a table without rows, or one whose full refresh was requested, is filled; None for
    the others.
    """
    if not facts.populated and facts.filled_before:
        return Decision("REINITIALIZE", facts.recompute_reason or "PLANNED_ANEW")
    if not facts.populated:
        return Decision("FULL", "INITIAL")
    if facts.full_requested:
        return Decision("FULL", "REQUESTED")
    return None


def _stored_rows_invalid(facts: Facts) -> Decision | None:
    """Return why the stored rows cannot be brought up to date by changes; None if they can."""
    truncated = next((source.name for source in facts.sources if source.truncated), None)
    if truncated is not None:
        return Decision("REINITIALIZE", "SOURCE_TRUNCATED", truncated)
    # The worst gap first.
    gap = next(
        ((code, source.name) for code in GAPS for source in facts.sources if source.gap == code),
        None,
    )
    # A new partition has a file of its own, which looks like a rewrite of the table.
    only_repartitioned = gap is not None and facts.recompute_reason == "SOURCE_REWRITTEN"
    if facts.recompute_reason and not only_repartitioned:
        return Decision("REINITIALIZE", facts.recompute_reason)
    return Decision("REINITIALIZE", *gap) if gap else None


def _by_changes(facts: Facts) -> Decision:
    """Return what the pending changes call for, if the stored rows are valid."""
    changed = any(source.changes for source in facts.sources)
    if not changed and not facts.clock:
        return Decision("NO_DATA", "NO_CHANGE")
    if facts.mode == "FULL":
        return Decision("FULL", "MODE_FULL")
    if not changed:
        return Decision("DIFFERENTIAL", "CLOCK")
    return _by_size(facts)


def _by_size(facts: Facts) -> Decision:
    """Return FULL if the mode is AUTO and a source has too large a share of changes."""
    for source in facts.sources if facts.mode == "AUTO" else ():
        if source.changes > _FEW_CHANGES and source.changed_share > facts.max_change_ratio:
            return Decision("FULL", "CHANGE_RATIO", f"{source.changed_share:.0%} of {source.name}")
    return Decision("DIFFERENTIAL", "CHANGED")
