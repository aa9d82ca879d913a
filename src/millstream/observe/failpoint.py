"""Places in a refresh where a test can kill the process, to prove that a crash loses nothing.

    cut -> changes -> demand -> Spark -> staged -> state -> target -> frontier -> commit -> prune

Each step of a refresh calls `failpoint(name)` when it is done. With MILLSTREAM_FAILPOINT=name in the
environment the process dies there by SIGKILL: nothing is unwound, flushed or rolled back by us, as
when the machine is switched off. Otherwise a call is one look into the environment.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "MILLSTREAM_FAILPOINT"

# In the order in which a refresh passes them; the crash test runs over this very tuple.
FAILPOINTS: tuple[str, ...] = (
    "cut_taken",
    "changes_read",
    "demand_read",
    "spark_done",
    "staged",
    "state_merged",
    "target_merged",
    "frontier_advanced",
    "committed",
    "pruned",
)


def failpoint(name: str) -> None:
    """Die here if the environment says so."""
    if name not in FAILPOINTS:
        raise ValueError(f"unknown failpoint {name!r}; they are: {', '.join(FAILPOINTS)}")
    armed = os.environ.get(VARIABLE)
    if armed is None:
        return
    # A misspelt name would kill nowhere, and the crash test would pass without a crash.
    if armed not in FAILPOINTS:
        raise ValueError(f"{VARIABLE} is {armed!r}; the failpoints are: {', '.join(FAILPOINTS)}")
    if armed == name:
        os.kill(os.getpid(), signal.SIGKILL)
