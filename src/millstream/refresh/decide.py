"""Choose what a refresh does: a pure function of facts, whose result is printed and logged.

nothing waits, no clock is asked     NO_DATA        NO_CHANGE
never filled                         FULL           INITIAL
a full one was asked for             FULL           REQUESTED
its mode is FULL                     FULL           MODE_FULL
a source was truncated               REINITIALIZE   SOURCE_TRUNCATED
it is planned otherwise              REINITIALIZE   PLANNED_ANEW
what the query stands on changed     REINITIALIZE   SOURCE_REPLACED, VIEW_REPLACED, FUNCTION_REPLACED, ...
its guard was missing                REINITIALIZE   UNGUARDED
its own table was altered            REINITIALIZE   TABLE_ALTERED
it has another BEFORE ROW trigger    REINITIALIZE   TRIGGERS_CHANGED
a source's partitions changed        REINITIALIZE   PARTITIONS_CHANGED
AUTO and too much has changed        FULL           CHANGE_RATIO
nothing waits, the clock is asked    DIFFERENTIAL   CLOCK, which ends as NO_DATA where no row has changed with it
otherwise                            DIFFERENTIAL   CHANGED
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.refresh.report import Action


@dataclass(frozen=True)
class SourceFacts:
    """What is known of one source at the cut."""

    name: str
    changes: int
    rows: float
    """PostgreSQL's estimate of the table's size; 0 when it has none."""
    truncated: bool = False
    members_changed: bool = False


@dataclass(frozen=True)
class Facts:
    """What is known of a stream table at the cut."""

    populated: bool
    mode: str
    sources: tuple[SourceFacts, ...]
    full_requested: bool = False
    max_change_ratio: float = 0.15
    recompute_reason: str = ""
    """The reason code where something under the query, not a row, is other than the stored rows were computed with."""
    filled_before: bool = False
    """It had rows, and starts over with another plan."""
    clock: bool = False
    """Its query asks what time it is."""


@dataclass(frozen=True)
class Decision:
    """What to do, and the reason code."""

    action: Action
    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.action} ({self.reason}{f': {self.detail}' if self.detail else ''})"


def decide(facts: Facts) -> Decision:
    """The first rule that holds."""
    if not facts.populated:
        again = Decision("REINITIALIZE", facts.recompute_reason or "PLANNED_ANEW")
        return again if facts.filled_before else Decision("FULL", "INITIAL")
    if facts.full_requested:
        return Decision("FULL", "REQUESTED")
    for source in facts.sources:
        if source.truncated:
            return Decision("REINITIALIZE", "SOURCE_TRUNCATED", source.name)
    partitioned = next((source.name for source in facts.sources if source.members_changed), "")
    # A partition that came has a file of its own, which looks like a rewrite.
    if facts.recompute_reason and not (partitioned and facts.recompute_reason == "SOURCE_REWRITTEN"):
        return Decision("REINITIALIZE", facts.recompute_reason)
    if partitioned:
        return Decision("REINITIALIZE", "PARTITIONS_CHANGED", partitioned)
    changed = any(source.changes for source in facts.sources)
    if not changed and not facts.clock:
        return Decision("NO_DATA", "NO_CHANGE")
    if facts.mode == "FULL":
        return Decision("FULL", "MODE_FULL")
    if not changed:
        return Decision("DIFFERENTIAL", "CLOCK")
    return _by_size(facts)


def _by_size(facts: Facts) -> Decision:
    for source in facts.sources:
        # Below a few thousand changes the differential way is cheap whatever the table's size.
        share = source.changes / source.rows if source.rows > 0 else 0.0
        if facts.mode == "AUTO" and source.changes > 5_000 and share > facts.max_change_ratio:
            return Decision("FULL", "CHANGE_RATIO", f"{share:.0%} of {source.name}")
    return Decision("DIFFERENTIAL", "CHANGED")
