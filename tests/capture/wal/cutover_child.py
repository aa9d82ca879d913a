"""A process to be killed: takes the steps of all hand-overs until nothing is left to do.

    python cutover_child.py DSN GOAL

It ends by itself when every source is in the mode WAL or TRIGGER, or when SETTLED: nothing of the
log is left. MILLSTREAM_FAILPOINT says where it shall die.
"""

from __future__ import annotations

import sys
import time

from millstream.capture.transition import transitions
from millstream.capture.transition.context import TransitionMemory
from millstream.capture.trigger.inventory import triggers
from millstream.capture.wal import slot
from millstream.catalog import slots, sources
from millstream.service.app import App
from millstream.settings import Settings


def main(dsn: str, goal: str) -> None:
    app = App(dsn, Settings(auto_replica_identity=True))
    deadline = time.monotonic() + 60
    while not _is_done(app, goal):
        assert time.monotonic() < deadline, sources.every(app.conn)
        app.steps = TransitionMemory()
        transitions.advance(app)
        time.sleep(0.02)
    app.close()


def _is_done(app: App, goal: str) -> bool:
    known = sources.every(app.conn)
    if goal == "SETTLED":
        return slots.get(app.conn, slot.name_of(app.conn)) is None
    if any(source.mode != goal for source in known):
        return False
    return goal == "TRIGGER" or not any(
        triggers(app.conn, [source.relid])[source.relid] for source in known
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
