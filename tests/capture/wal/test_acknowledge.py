"""The log is let go only up to what is durable, however rows, markers, stores and crashes
interleave.

A small world stands in for server, pipeline and disk. Its law: every row of a transaction before
the confirmed position is in its store, and in the end every row is there once. The controls break
one rule each, and are caught. MILLSTREAM_TEST_LOG_STEPS=1000000 takes a million steps.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from millstream.capture.wal.acknowledge import BufferPositions, Ledger

STEPS = int(os.environ.get("MILLSTREAM_TEST_LOG_STEPS", "2500"))
PER_RUN = 50
STORES = (1, 2, 3)
HASTY = settings(
    max_examples=max(STEPS // PER_RUN, 1),
    stateful_step_count=PER_RUN,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
# That a control is caught is enough, the smallest way to catch it is of no use; it ends when it is
# caught.
UNSHRUNK = settings(HASTY, phases=[Phase.generate], max_examples=5000)


class World(RuleBasedStateMachine):
    """A server with a log and a slot, a pipeline in memory, stores on disk."""

    empty = Ledger

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[int, tuple[int, ...]]] = []
        """Transactions: where they end, and the stores they have rows of."""
        self.end = 10
        self.confirmed = 10
        self.disk: dict[int, Counter[int]] = {store: Counter() for store in STORES}
        self.watermarks = dict.fromkeys(STORES, 0)
        self.connect()

    def connect(self) -> None:
        self.ledger = self.empty.starting_at(self.confirmed, STORES)
        self.unsent = [each for each in self.log if each[0] > self.confirmed]
        self.queues: dict[int, list[int]] = {store: [] for store in STORES}

    # -- the server --------------------------------------------------------------------------

    @rule(stores=st.sets(st.sampled_from(STORES)))
    def commit(self, stores: set[int]) -> None:
        """Of some stores, or of none: somebody else's."""
        self.end += 10
        self.log.append((self.end, tuple(stores)))
        self.unsent.append(self.log[-1])

    @rule()
    def send(self) -> None:
        if not self.unsent:
            return
        end, stores = self.unsent.pop(0)
        for store in stores:
            self.ledger = self.ledger.handed(store, end)
            self.queues[store].append(end)

    @rule()
    def keepalive(self) -> None:
        """The server has sent all before this."""
        sent = self.end if not self.unsent else self.unsent[0][0] - 10
        self.ledger = self.ledger.reach_marker(sent)

    @rule()
    def acknowledge(self) -> None:
        assert self.ledger.acknowledged >= self.confirmed, "it went back"
        self.confirmed = self.ledger.acknowledged

    # -- the stores --------------------------------------------------------------------------

    @rule(store=st.sampled_from(STORES), count=st.integers(1, 4))
    def flush(self, store: int, count: int) -> None:
        batch, self.queues[store] = self.queues[store][:count], self.queues[store][count:]
        if batch:
            self.disk[store].update(end for end in batch if end > self.watermarks[store])
            self.watermarks[store] = max(self.watermarks[store], batch[-1])
            self.ledger = self.ledger.durable(store, batch[-1])

    @rule()
    def crash(self) -> None:
        self.connect()

    # -- the law -----------------------------------------------------------------------------

    @invariant()
    def nothing_is_let_go_that_is_not_durable(self) -> None:
        for end, stores in self.log:
            for store in stores:
                assert self.disk[store][end] <= 1, "stored twice"
                assert end > self.confirmed or self.disk[store][end] == 1, "let go, and not stored"

    def teardown(self) -> None:
        while self.unsent:
            self.send()
        for store in STORES:
            self.flush(store, len(self.log) + 1)
        self.keepalive()
        self.acknowledge()
        self.nothing_is_let_go_that_is_not_durable()
        assert self.confirmed == self.end, "with nothing on its way, all can be let go"


def test_nothing_is_let_go_that_is_not_durable_and_all_is_stored_once() -> None:
    run_state_machine_as_test(World, settings=HASTY)


class _Blind(Ledger):
    """Acknowledges a keepalive as it comes."""

    def reach_marker(self, lsn: int) -> Ledger:
        return replace(self, marker=lsn, acknowledged=max(self.acknowledged, lsn))


class _Early(Ledger):
    """Takes what was handed over for durable."""

    def handed(self, store: int, lsn: int) -> Ledger:
        return self.durable(store, lsn)


class _First(Ledger):
    """Listens to the first store only."""

    def _counted(self) -> Ledger:
        first = min(self.buffers)
        return replace(self, acknowledged=max(self.acknowledged, self.buffers[first].position))


@pytest.mark.parametrize("broken", [_Blind, _Early, _First])
def test_a_broken_rule_is_caught(broken: type[Ledger]) -> None:
    world = type(f"{broken.__name__}World", (World,), {"empty": broken})
    with pytest.raises(AssertionError, match="let go, and not stored"):
        run_state_machine_as_test(world, settings=UNSHRUNK)


# -- one by one ------------------------------------------------------------------------------


def test_nothing_is_known_before_each_store_has_seen_a_marker() -> None:
    ledger = Ledger.starting_at(10, [1, 2]).handed(1, 20).durable(1, 20)
    assert ledger.acknowledged == 10
    assert ledger.reach_marker(30).acknowledged == 30


def test_a_store_with_rows_in_transit_retains_wal() -> None:
    ledger = Ledger.starting_at(10, [1, 2]).handed(1, 20).reach_marker(30)
    assert ledger.acknowledged == 10
    assert ledger.durable(1, 20).acknowledged == 30


def test_without_stores_the_last_marker_counts() -> None:
    assert Ledger.starting_at(10, []).reach_marker(30).acknowledged == 30


def test_an_older_marker_is_ignored() -> None:
    assert Ledger.starting_at(10, [1]).reach_marker(30).reach_marker(20).acknowledged == 30


def test_a_new_store_retains_wal_until_it_has_seen_a_marker() -> None:
    ledger = Ledger.starting_at(10, [1]).reach_marker(30).join(2)
    assert ledger.durable(1, 40).acknowledged == 30
    assert ledger.reach_marker(50).acknowledged == 50


def test_a_store_that_leaves_lets_go_what_it_held() -> None:
    ledger = Ledger.starting_at(10, [1, 2]).handed(2, 20).reach_marker(30)
    assert ledger.leave(2).acknowledged == 30
    assert BufferPositions().position == 0
