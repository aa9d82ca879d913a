"""Places in a refresh and in capture where a test can kill the process, to prove that a crash loses nothing.

    cut -> changes -> demand -> Spark -> staged -> state -> target -> frontier -> commit -> prune
    log: received -> spilled -> marker -> stored -> durable -> acknowledged
    create: recorded -> captured -> then as a refresh; drop: dropped, not committed -> committed
    hand-over: begun -> identity -> published -> slot -> waiting -> turned -> released; given up; taken back; lost
    adopt: examined -> resolved -> rewritten -> committed -> each source captured -> each stream table filled
    uninstall in parts: each stream table gone -> the capture of each table and source gone

Each step calls `failpoint(name)` when it is done. With MILLSTREAM_FAILPOINT=name in the environment the process
dies there by SIGKILL: nothing is unwound, flushed or rolled back by us, as when the machine is switched off. Otherwise
a call is one look into the environment.
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
# Those of capture by the log: a transaction was received whole; some of one went to disk; a marker is about to be
# stored; a batch is stored and not committed; it is; the server was told so.
LOG_FAILPOINTS: tuple[str, ...] = (
    "log_received",
    "log_spilled",
    "log_marker",
    "log_stored",
    "log_durable",
    "log_acknowledged",
)
# Those of a hand-over, each after the step of that name is recorded: to the log, back from it, and without it.
HAND_OVER_FAILPOINTS: tuple[str, ...] = (
    "handover_begun",
    "handover_identity",
    "handover_published",
    "handover_slot",
    "handover_waiting",
    "handover_turned",
    "handover_released",
    "handover_given_up",
    "handover_taken_back",
    "handover_lost",
)
# Those of create and drop: the catalog's rows and the tables are there; a source is captured; all of a stream table is
# dropped and not yet committed; it is.
CREATE_FAILPOINTS: tuple[str, ...] = ("create_recorded", "create_captured")
DROP_FAILPOINTS: tuple[str, ...] = ("drop_uncommitted", "drop_committed")
# Those of adopting a catalog that came from another database; the second and the third before their commit.
ADOPT_FAILPOINTS: tuple[str, ...] = (
    "adopt_examined",
    "adopt_resolved",
    "adopt_rewritten",
    "adopt_committed",
    "adopt_captured",
    "adopt_filled",
)
# Those of uninstalling in parts: a stream table is gone; triggers or a buffer are.
UNINSTALL_FAILPOINTS: tuple[str, ...] = ("uninstall_stream_table", "uninstall_capture")
ALL = (
    *FAILPOINTS,
    *LOG_FAILPOINTS,
    *HAND_OVER_FAILPOINTS,
    *CREATE_FAILPOINTS,
    *DROP_FAILPOINTS,
    *ADOPT_FAILPOINTS,
    *UNINSTALL_FAILPOINTS,
)


def failpoint(name: str) -> None:
    """Die here if the environment says so."""
    if name not in ALL:
        raise ValueError(f"unknown failpoint {name!r}; they are: {', '.join(ALL)}")
    armed = os.environ.get(VARIABLE)
    if armed is None:
        return
    # A misspelt name would kill nowhere, and the crash test would pass without a crash.
    if armed not in ALL:
        raise ValueError(f"{VARIABLE} is {armed!r}; the failpoints are: {', '.join(ALL)}")
    if armed == name:
        os.kill(os.getpid(), signal.SIGKILL)
