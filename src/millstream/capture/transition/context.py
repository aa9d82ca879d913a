"""What transitions need of the application, and what a process remembers of them between ticks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from millstream.capture.transition.lag import LagWatch
from millstream.capture.wal.follower import Follower
from millstream.catalog.processes.mutex import Mutex
from millstream.postgres.connection import Connection
from millstream.settings import Settings


@dataclass
class TransitionMemory:
    """Times of the last checks, by the process's own clock. All durable state is in the catalog."""

    looked_at: float = float("-inf")
    asked_at: dict[int, float] = field(default_factory=dict)
    """By source: when it was last checked whether it can move to the WAL."""
    lag: LagWatch = field(default_factory=LagWatch)
    """Which alerts were sent about the lag of the slot."""


class TransitionContext(Protocol):
    """What a transition needs of the application."""

    dsn: str
    settings: Settings
    conn: Connection
    mutex: Mutex
    follower: Follower
    steps: TransitionMemory
