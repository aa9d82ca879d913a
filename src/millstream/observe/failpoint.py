"""Places in a refresh and in capture where a test can kill the process, to prove that a crash loses
nothing.

    cut -> changes -> demand -> Spark -> staged -> state -> target -> frontier -> commit -> prune
    WAL: received -> spilled -> marker -> stored -> durable -> acknowledged
    create: recorded -> captured -> then as a refresh; drop: dropped, not committed -> committed
    another query: captured -> altered, not committed -> then as a refresh -> filled -> narrowed
    CDC transition: begun -> identity -> published -> slot -> waiting -> cut over -> released; given up; returned; lost
    adopt: examined -> resolved -> rewritten -> committed -> each source captured -> each stream table filled
    uninstall in parts: each stream table gone -> the capture of each table and source gone
    request: begun -> done, not answered

Each step calls `failpoint(name)` when it is done. With MILLSTREAM_FAILPOINT=name in the environment
the process dies there by SIGKILL: it unwinds, flushes and rolls back nothing, as if the machine
lost power. Without it, a call only reads the environment.
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
# WAL capture: a transaction was received in full; part of one was spilled to disk; a marker is
# about to be stored; a batch is stored and not committed; it is committed; its position was
# acknowledged to the server.
LOG_FAILPOINTS: tuple[str, ...] = (
    "wal_received",
    "wal_spilled",
    "wal_marker",
    "wal_stored",
    "wal_durable",
    "wal_acknowledged",
)
# CDC transitions, each after its step is recorded: to WAL, back to triggers, and back after WAL was
# lost.
TRANSITION_FAILPOINTS: tuple[str, ...] = (
    "transition_begun",
    "transition_identity",
    "transition_published",
    "transition_slot",
    "transition_waiting",
    "transition_switched",
    "transition_released",
    "transition_given_up",
    "transition_returned",
    "transition_lost",
)
# Create and drop: the catalog rows and the tables exist; a source is captured; everything of a
# stream table is dropped and not yet committed; it is committed.
CREATE_FAILPOINTS: tuple[str, ...] = ("create_recorded", "create_captured")
DROP_FAILPOINTS: tuple[str, ...] = ("drop_uncommitted", "drop_committed")
# Another query for a stream table: an additional source is captured; catalog and table are altered
# and not yet committed; all is committed; sources that only the former query read are no longer
# dependencies.
REDEFINE_FAILPOINTS: tuple[str, ...] = (
    "redefine_captured",
    "redefine_altered",
    "redefine_filled",
    "redefine_narrowed",
)
# Adopting a catalog that came from another database; the second and the third are before their
# commit.
ADOPT_FAILPOINTS: tuple[str, ...] = (
    "adopt_examined",
    "adopt_resolved",
    "adopt_rewritten",
    "adopt_committed",
    "adopt_captured",
    "adopt_filled",
)
# Uninstalling in parts: a stream table was removed; triggers or a buffer were removed.
UNINSTALL_FAILPOINTS: tuple[str, ...] = ("uninstall_stream_table", "uninstall_capture")
# A request was begun; it was done, and is not answered yet.
REQUEST_FAILPOINTS: tuple[str, ...] = ("request_begun", "request_done")
ALL = (
    *FAILPOINTS,
    *LOG_FAILPOINTS,
    *TRANSITION_FAILPOINTS,
    *CREATE_FAILPOINTS,
    *DROP_FAILPOINTS,
    *REDEFINE_FAILPOINTS,
    *ADOPT_FAILPOINTS,
    *UNINSTALL_FAILPOINTS,
    *REQUEST_FAILPOINTS,
)


def failpoint(name: str) -> None:
    """Kill the process if the environment names this failpoint."""
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
