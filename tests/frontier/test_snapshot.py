"""A snapshot against a model of it: the set of transactions that had committed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.frontier.snapshot import Slice, Snapshot
from millstream.postgres.connection import Connection

XIDS = range(3, 40)


@dataclass(frozen=True)
class Moment:
    """What PostgreSQL would say at one moment, and what was committed by then."""

    snapshot: Snapshot
    committed: frozenset[int]


@st.composite
def histories(draw: st.DrawFn) -> list[Moment]:
    """Transactions begin and end in any order; the moments after each step."""
    next_xid, running, committed = draw(st.integers(3, 8)), set[int](), set[int]()
    committed |= set(range(3, next_xid))
    moments = [_moment(next_xid, running, committed)]
    for begins in draw(st.lists(st.booleans(), max_size=20)):
        if begins or not running:
            running.add(next_xid)
            next_xid += 1
        else:
            ended = draw(st.sampled_from(sorted(running)))
            running.discard(ended)
            committed.add(ended)
        moments.append(_moment(next_xid, running, committed))
    return moments


def _moment(next_xid: int, running: set[int], committed: set[int]) -> Moment:
    oldest = min(running, default=next_xid)
    return Moment(Snapshot(oldest, next_xid, tuple(sorted(running))), frozenset(committed))


def pairs(moments: list[Moment]) -> Iterator[tuple[Moment, Moment]]:
    return ((one, other) for place, one in enumerate(moments) for other in moments[place:])


@given(histories())
def test_a_snapshot_sees_what_had_committed(moments: list[Moment]) -> None:
    for moment in moments:
        assert {xid for xid in XIDS if moment.snapshot.sees(xid)} == moment.committed


@given(histories())
def test_its_text_is_read_back(moments: list[Moment]) -> None:
    for moment in moments:
        assert Snapshot.parse(str(moment.snapshot)) == moment.snapshot


@given(histories())
def test_a_later_snapshot_reaches_every_earlier_one(moments: list[Moment]) -> None:
    for earlier, later in pairs(moments):
        assert later.snapshot.reaches(earlier.snapshot)


@given(histories(), histories())
def test_a_snapshot_reaches_none_that_sees_more(one: list[Moment], other: list[Moment]) -> None:
    for first in one:
        for second in other:
            if first.snapshot.reaches(second.snapshot):
                assert first.committed >= second.committed


@given(histories())
def test_a_slice_holds_what_committed_between_its_ends(moments: list[Moment]) -> None:
    for start, end in pairs(moments):
        slice_ = Slice(start.snapshot, end.snapshot)
        assert {xid for xid in XIDS if slice_.holds(xid)} == end.committed - start.committed


@given(histories())
def test_slices_one_after_the_other_lose_and_repeat_nothing(moments: list[Moment]) -> None:
    whole = Slice(moments[0].snapshot, moments[-1].snapshot)
    parts = [Slice(a.snapshot, b.snapshot) for a, b in itertools.pairwise(moments)]
    for xid in XIDS:
        assert sum(part.holds(xid) for part in parts) == whole.holds(xid)


@given(histories())
def test_a_slice_that_runs_backwards_cannot_exist(moments: list[Moment]) -> None:
    for earlier, later in pairs(moments):
        if earlier.committed != later.committed:
            with pytest.raises(ValueError, match="runs backwards"):
                Slice(later.snapshot, earlier.snapshot)


@pytest.mark.parametrize("text", ["20:10:", "10:20:9", "10:20:20", "10:20:15,12", "10:20:12,12"])
def test_a_snapshot_that_postgres_would_not_give_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="snapshot"):
        Snapshot.parse(text)


@pytest.mark.parametrize("text", ["10:10:", "10:20:10", "10:20:12,15,19", "3:40:3,39"])
def test_postgres_agrees_on_what_is_visible(conn: Connection, text: str) -> None:
    rows = conn.execute(
        "SELECT x, pg_visible_in_snapshot(x::text::xid8, %s::pg_snapshot) FROM generate_series(3, 39) AS x",
        (text,),
    )
    assert dict(rows) == {xid: Snapshot.parse(text).sees(xid) for xid in XIDS}
