"""The thread that reads WAL, and moves sources between triggers and WAL.

It also runs while the scheduler is off (setting `enabled`): an unread slot makes the server retain
WAL, and triggers fill buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import psycopg

from millstream.capture.transition import transitions
from millstream.capture.wal.heartbeat import flushed
from millstream.catalog import sources
from millstream.errors import MillstreamError
from millstream.observe import log
from millstream.postgres.connection import Connection
from millstream.service.app import App
from millstream.service.verb import verb
from millstream.settings import Settings

# Seconds between two checks during transitions, and otherwise: a request for a transition also
# wakes the thread.
MOVING, QUIET = 1.0, 5.0


class CaptureThread:
    """The thread that owns the WAL reader of this process."""

    def __init__(self, open_app: Callable[[], App], changed: Callable[[], None]) -> None:
        self.app = open_app()
        self._changed = changed
        self._modes = dict[int, sources.Mode]()
        self._settings: Settings | None = None
        self._stop = Event()
        self._wake = Event()
        self._thread = Thread(target=self._run, name="capture", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def look(self) -> None:
        """Check at once, since sources were added or removed."""
        self._wake.set()

    def store_position(self, conn: Connection) -> None:
        """Have the WAL reader store its position now, since a reader waits for it."""
        pipeline = self.app.follower.pipeline
        if pipeline is not None:
            pipeline.store_position(flushed(conn))

    def use(self, settings: Settings) -> None:
        """Use these settings from the next turn on."""
        self._settings = settings
        self.look()

    def stop(self, seconds: float) -> None:
        """Stop reading WAL; the server sends rows that are not durable again to the next reader."""
        self._stop.set()
        self._wake.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.hang_up()
            self._thread.join(seconds)
        self.app.close()

    def hang_up(self) -> None:
        """End the running statements."""
        self.app.hang_up()

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = MOVING
            try:
                if self._settings is not None:
                    self.app.use(self._settings)
                    self._settings = None
                pause = MOVING if _advance(self.app) else QUIET
                self._tell_changes()
            except (MillstreamError, psycopg.Error) as error:
                log.warning("capture waits", reason=str(error))
            except Exception as error:
                log.error("capture failed", reason=f"{type(error).__name__}: {error}")
            self._wake.wait(pause)
            self._wake.clear()

    def _tell_changes(self) -> None:
        modes = {source.relid: source.mode for source in sources.every(self.app.conn)}
        if modes != self._modes:
            self._modes = modes
            self._changed()


@verb
def _advance(app: App) -> bool:
    """Take the next step of every transition; return True while one is on its way."""
    try:
        app.follower.follow()
    except transitions.LOST as error:
        # `follow` raises the error of a failed reader only once, so handle it here.
        transitions.give_up_wal(app, error.detail)
    transitions.advance(app)
    return any(source.mode == "TRANSITIONING" for source in sources.every(app.conn))
