"""The process killed at every step of a refresh: the next one finds all of it applied, or nothing.

The failpoints are counted first, by a refresh of the same kind: a refresh of three tables passes
most of them several times, and is killed at each single pass.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from millstream.client import Millstream
from millstream.errors import NameTaken
from millstream.observe.failpoint import FAILPOINTS
from millstream.refresh import cut, evaluate, recursion, staging_tables
from millstream.refresh.apply import merge, record
from millstream.scheduler import round
from millstream.testing.writers import VIEWS

if TYPE_CHECKING:
    from tests.crash.conftest import Child, Mill, Seen

# Points that lie behind the commit.
APPLIED = ("committed", "pruned")
DIFFERENTIAL = dict.fromkeys(VIEWS, "DIFFERENTIAL")
NO_DATA = dict.fromkeys(VIEWS, "NO_DATA")


@pytest.fixture(scope="module")
def passes(mill: Mill) -> Counter[str]:
    """How often a refresh of one batch passes each failpoint."""
    counted = Counter[str]()
    mill.change()
    with pytest.MonkeyPatch.context() as patch:
        for module in (cut, evaluate, recursion, staging_tables, merge, record, round):
            patch.setattr(module, "failpoint", lambda name: counted.update([name]))
        assert mill.refresh() == DIFFERENTIAL
    return counted


@pytest.mark.spark
def test_every_failpoint_is_passed_and_extremes_are_recomputed(passes: Counter[str]) -> None:
    assert set(passes) == set(FAILPOINTS)
    assert passes["spark_done"] > len(VIEWS), "no group had to be recomputed"
    print(dict(passes), passes.total(), "crashes to come")


@pytest.mark.spark
@pytest.mark.parametrize("point", FAILPOINTS)
def test_a_refresh_killed_at_any_pass_of_this_point_is_applied_whole_or_not_at_all(
    mill: Mill, child: Child, passes: Counter[str], point: str
) -> None:
    for number in range(1, passes[point] + 1):
        mill.change()
        before = mill.seen()
        ended = child(mill.dsn, "refresh", point=point, number=number)
        assert ended.killed_at == (point, number), ended
        if point in APPLIED:
            assert mill.seen() != before
            mill.check()
            assert mill.refresh() == NO_DATA
        else:
            assert mill.seen() == before
            assert mill.refresh() == DIFFERENTIAL
        mill.check()
        _expect_one_more_refresh(before, mill.seen())
        assert mill.settled() == (0 if point in APPLIED or point == "cut_taken" else len(VIEWS))


def _expect_one_more_refresh(before: Seen, after: Seen) -> None:
    """Each table: one batch of changes, one DIFFERENTIAL refresh in the history, whoever made it."""
    for name in VIEWS:
        assert after.completed[name, "DIFFERENTIAL"] == before.completed[name, "DIFFERENTIAL"] + 1


@pytest.mark.spark
def test_a_process_with_a_spark_of_its_own_is_killed_and_nothing_is_lost(
    mill: Mill, child_with_own_spark: Child
) -> None:
    mill.change()
    before = mill.seen()
    ended = child_with_own_spark(mill.dsn, "refresh", point="target_merged")
    assert ended.killed_at == ("target_merged", 1), ended
    assert mill.seen() == before
    assert mill.refresh() == DIFFERENTIAL
    mill.check()


@pytest.mark.spark
def test_a_process_that_is_not_killed_refreshes_all(mill: Mill, child: Child) -> None:
    mill.change()
    ended = child(mill.dsn, "refresh")
    assert (ended.code, ended.killed_at) == (0, None), ended
    mill.check()
    assert mill.refresh() == NO_DATA


# -- while creating --------------------------------------------------------------------------

# A first refresh reads no changes.
FIRST = tuple(point for point in FAILPOINTS if point != "changes_read")
NAME = "counted"
QUERY = "SELECT region, count(*) AS n, max(id) AS last FROM customers GROUP BY region"


@pytest.mark.spark
@pytest.mark.parametrize("point", FIRST)
def test_a_create_killed_at_this_point_can_be_finished_or_dropped(
    mill: Mill, child: Child, point: str
) -> None:
    before = mill.furniture()
    ended = child(mill.dsn, "create", NAME, QUERY, point=point)
    assert ended.killed_at == (point, 1), ended
    assert _status(mill.ms) == ("ACTIVE" if point in APPLIED else "INITIALIZING")
    with pytest.raises(NameTaken):
        mill.ms.create_stream_table(NAME, QUERY)
    mill.conn.execute("UPDATE customers SET region = region || '!' WHERE id = 4")
    assert mill.ms.refresh(NAME).reason == ("CHANGED" if point in APPLIED else "INITIAL")
    mill.ms.drop_stream_table(NAME)
    assert mill.furniture() == before
    assert mill.refresh() == {**NO_DATA, "totals": "DIFFERENTIAL"}


def _status(ms: Millstream) -> str:
    return next(one.status for one in ms.status() if one.name == NAME)
