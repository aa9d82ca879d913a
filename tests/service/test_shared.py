"""What the applications of one process share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from millstream.service.shared import Shared


def test_a_stream_table_that_is_forgotten_leaves_nothing_and_others_stay() -> None:
    # Any: what stands for a plan is not looked at.
    plan: Any = object()
    shared = Shared()
    for id_ in (1, 2):
        shared.plans[id_] = (datetime.now(UTC), plan)
        shared.kept.add(id_)
        shared.recorded[id_] = ({}, frozenset(), frozenset())
    shared.forget(1)
    shared.forget(1)
    assert ([*shared.plans], shared.kept, [*shared.recorded]) == ([2], {2}, [2])
