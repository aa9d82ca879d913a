"""A process to be killed: captures from a slot until it is.

    python child.py DSN SLOT whole|"in chunks"

MILLSTREAM_FAILPOINT says where it shall die, MILLSTREAM_TEST_PASS at which passing of that point.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from millstream.capture.wal.pipeline import Options, Pipeline
from millstream.observe import failpoint

OPTIONS = Options(
    budget=1 << 18,
    status_interval=0.2,
    idle_bytes=1,
    idle_seconds=0.1,
    idle_at_most=0.2,
    heartbeat_interval=0.1,
)


def main(dsn: str, slot: str, how: str) -> None:
    die_at_pass(int(os.environ.get("MILLSTREAM_TEST_PASS", "1")))
    pipeline = Pipeline(dsn, slot, replace(OPTIONS, in_chunks=how == "in chunks"))
    pipeline.start()
    pipeline.wait(1 << 62, 60)


def die_at_pass(number: int) -> None:
    """Let the failpoint pass some times before it kills."""
    kill, passes = os.kill, iter(range(1, number + 1))

    def kill_later(pid: int, signal: int) -> None:
        if next(passes) == number:
            kill(pid, signal)

    failpoint.os.kill = kill_later  # type: ignore[attr-defined]  # its own import of os


if __name__ == "__main__":
    main(*sys.argv[1:])
