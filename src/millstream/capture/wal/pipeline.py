"""Read WAL from the slot into the change buffers.

    server ─► reader ─► transactions ─► inbox ─► buffer writer ─► cursor ─► feedback ─► server
              keepalives ─────────────► markers ──┘               durable

Three threads: one reads, one writes buffers, one acknowledges durable positions to the server. A
keepalive means that the server has sent everything up to a position. It becomes a marker, which
follows all rows received before it through the pipeline, and only positions that reach the end are
acknowledged. So a table without writes never retains WAL, and no position is acknowledged before
its rows are durable.

After any failure everything in memory is dropped, and reading resumes at the cursor: recovery is
the same as starting.

A marker without rows before it is rarely stored (`idle_at_most`), because storing it writes WAL
itself, and an idle server should stay idle. It is stored at once if somebody waits for it
(`store_position`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from threading import Condition, Event, Thread
from typing import Literal
from uuid import uuid4

import psycopg

from millstream.capture.wal import slot as slot_of
from millstream.capture.wal.buffer_writer import BATCH_BYTES, BATCH_ROWS, BufferWriter, Part, parts
from millstream.capture.wal.connection import SENDER_TIMEOUT, Stream
from millstream.capture.wal.feedback import Feedback
from millstream.capture.wal.health import Health
from millstream.capture.wal.heartbeat import SlotHeartbeat
from millstream.capture.wal.inbox import Inbox, Marker
from millstream.capture.wal.messages.protocol import DATA, KEEPALIVE, LogicalMessage, keepalive
from millstream.capture.wal.messages.transactions import BUDGET, Assembler, Transaction
from millstream.catalog import slots
from millstream.catalog.slots import Interruption, Progress
from millstream.errors import MillstreamError, ServerDown, WalBroken
from millstream.frontier import lsn
from millstream.observe import log
from millstream.observe.failpoint import failpoint
from millstream.postgres.connection import hang_up, session


@dataclass(frozen=True)
class Options:
    """Options of a pipeline; times are in seconds, sizes in bytes."""

    budget: int = BUDGET
    """Of open transactions in memory, and as much again of those that wait to be stored."""
    linger: float = 0.05
    """How long a batch waits to be filled."""
    status_interval: float = min(10.0, SENDER_TIMEOUT / 3)
    silence: float = 2 * SENDER_TIMEOUT
    """Without a byte for so long the connection counts as dead."""
    idle_bytes: int = 64 << 10
    """A marker alone is stored when it is so far ahead of the cursor,"""
    idle_seconds: float = 1.0
    """and the last was stored so long ago;"""
    idle_at_most: float = 30.0
    """or after this time, however near it is."""
    heartbeat_interval: float = 15.0
    heartbeat_timeout: float = 600.0
    in_chunks: bool = False
    """Have large transactions sent before they end (protocol 2)."""
    pause: float = 0.2
    """Seconds before reading resumes after a failure; doubled up to `longest_pause`."""
    longest_pause: float = 30.0
    patience: float = 10.0
    """For a batch that is being stored when all ends."""


State = Literal["NEW", "RUNNING", "STOPPED", "FAILED"]


class Pipeline:
    """Captures from one slot until it is stopped."""

    def __init__(self, dsn: str, slot: str, options: Options | None = None) -> None:
        self.dsn = dsn
        self.slot = slot
        self.options = options or Options()
        self.health = Health()
        self.state: State = "NEW"
        self.error: BaseException | None = None
        self.wanted = 0
        """A position that somebody waits for."""
        self._owner = uuid4().hex
        self._has_claimed = False
        self._unrecorded: Interruption | None = None
        self._stop = Event()
        self._moved = Condition()
        self._thread = Thread(target=self._run, name="millstream log", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self.state = "RUNNING"
        self._thread.start()

    def stop(self) -> None:
        """End; what is not durable will be sent again to the next one.

        Raises the error it has ended by, if any.
        """
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def wait(self, position: int, seconds: float) -> bool:
        """Wait until all before this position is durable."""
        with self._moved:
            self._moved.wait_for(
                lambda: self.health.durable >= position or self.state != "RUNNING", seconds
            )
        if self.error is not None:
            raise self.error
        return self.health.durable >= position

    def store_position(self, position: int) -> None:
        """Store a marker as soon as everything before this position is read.

        May be called from any thread.
        """
        self.wanted = max(self.wanted, position)

    # -- one connection after the other ------------------------------------------------------

    def _run(self) -> None:
        try:
            self._attempts()
            self.state = "STOPPED"
        except BaseException as error:  # It is raised again in the thread that stops or waits.
            self.error, self.state = self._ours(error), "FAILED"
            log.error(
                "WAL capture has ended", slot=self.slot, reason=str(error), **self._positions()
            )
        finally:
            with self._moved:
                self._moved.notify_all()

    def _ours(self, error: BaseException) -> BaseException:
        """Convert errors for those who wait for WAL capture, so that only refreshes that need it
        stop.
        """
        if isinstance(error, MillstreamError) or not isinstance(error, Exception):
            return error
        broken = WalBroken.off(self.slot, f"{type(error).__name__}: {error}")
        broken.__cause__ = error
        return broken

    def _attempts(self) -> None:
        pause = self.options.pause
        while not self._stop.is_set():
            began, former = time.monotonic(), self.health.durable
            try:
                self._attempt()
            except (WalBroken, ServerDown, psycopg.OperationalError) as error:
                self._interrupted(error)
                if (
                    self.health.durable > former
                    or time.monotonic() - began > self.options.longest_pause
                ):
                    pause = self.options.pause
                self._stop.wait(pause)
                pause = min(2 * pause, self.options.longest_pause)

    def _interrupted(self, error: Exception) -> None:
        reason = error.detail if isinstance(error, MillstreamError) else str(error).strip()
        self.health.reconnects += 1
        self.health.reason = reason
        count = self._unrecorded.count + 1 if self._unrecorded else 1
        self._unrecorded = Interruption(reason, count, time.monotonic())
        log.warning(
            "WAL capture is interrupted", slot=self.slot, reason=reason, **self._positions()
        )

    def _positions(self) -> dict[str, str | int]:
        """Return fields for log events."""
        health = self.health
        return {
            "received": lsn.printed(health.received), "durable": lsn.printed(health.durable),
            "reconnects": health.reconnects, "markers": health.markers,
        }  # fmt: skip

    def _attempt(self) -> None:
        """Read WAL from the cursor on, until something fails or the pipeline is stopped."""
        with session(self.dsn) as conn:
            conn.execute("SET synchronous_commit = on; SET application_name = 'millstream store'")
            # A process that starts takes over; one that lost the slot does not take it back.
            writer = BufferWriter.claimed(
                conn, self.slot, self._owner, take_over=not self._has_claimed
            )
            self._has_claimed = True
            if self._unrecorded:
                slots.note_interruption(conn, self.slot, writer.epoch, self._unrecorded)
                self._unrecorded = None
            slot = slots.get(conn, self.slot)
            assert slot is not None, "the writer has claimed it"
            slot_of.check(conn, self.dsn, slot)
            slot_of.end_stale_sender(conn, self.slot)
            self._durable(writer, slot.cursor)
            stream = Stream(
                self.dsn, self.slot, slot.publication, slot.cursor, in_chunks=self.options.in_chunks
            )
            log.info("WAL is read", slot=self.slot, **self._positions())
            try:
                _Session(self, writer, stream).run()
            finally:
                stream.close()
            log.info("WAL is no longer read", slot=self.slot, **self._positions())

    def _durable(self, writer: BufferWriter, position: int) -> None:
        with self._moved:
            self.health.durable = max(self.health.durable, position)
            self.health.life_at = time.monotonic()
            self.health.written = writer.written
            self._moved.notify_all()


class _Session:
    """The threads of one connection; what they share dies with it."""

    def __init__(self, pipeline: Pipeline, writer: BufferWriter, stream: Stream) -> None:
        self.pipeline = pipeline
        self.options = pipeline.options
        self.writer = writer
        self.stream = stream
        self.inbox = Inbox(self.options.budget, pipeline._stop)
        self.assembler = Assembler(self.options.budget)
        self.feedback = Feedback(stream, writer.ledger.acknowledged, self.options.status_interval)
        self.heartbeat = SlotHeartbeat(
            pipeline.dsn,
            pipeline.health,
            self.options.heartbeat_interval,
            self.options.heartbeat_timeout,
        )
        self._write_thread = Thread(target=self._write, name="millstream store", daemon=True)
        self._trouble: BaseException | None = None
        self._marker = 0
        self._written_at = time.monotonic()

    def run(self) -> None:
        """Read until something breaks or the pipeline is stopped."""
        self.feedback.start()
        self.heartbeat.start()
        self._write_thread.start()
        try:
            while not self.pipeline._stop.is_set() and self._trouble is None:
                self._read()
        finally:
            self.inbox.close()
            self._end_writer()
            self.feedback.stop()
            self.assembler.close()
            self.heartbeat.stop()
        if self._trouble is not None:
            raise self._trouble

    def _end_writer(self) -> None:
        """Let it finish its batch; where its own connection is dead too, do not wait for that to be
        found out.
        """
        self._write_thread.join(self.options.patience)
        if self._write_thread.is_alive():
            hang_up(self.writer.conn)
            self._write_thread.join()

    # -- reading -----------------------------------------------------------------------------

    def _read(self) -> None:
        frames = self.stream.receive(0.1)
        take = self.assembler.take
        for frame in frames:
            if frame[0] == DATA:
                done = take(frame)
                if done is not None:
                    self._received(done)
            elif frame[0] == KEEPALIVE:
                self._keepalive(frame)
        if not frames:
            self._look_for_life()

    def _received(self, done: Transaction | LogicalMessage) -> None:
        if isinstance(done, Transaction):
            failpoint("wal_received")
            self.inbox.put(done)
            self.pipeline.health.received = done.end_lsn

    def _keepalive(self, frame: bytes) -> None:
        told = keepalive(frame)
        if told.wants_reply:
            self.feedback.reply()
        if self.assembler.is_between:
            self.inbox.put_marker(told.end)
            self.pipeline.health.received = told.end

    def _look_for_life(self) -> None:
        silent = time.monotonic() - self.stream.received_at
        if silent > self.options.silence:
            raise WalBroken.off(
                self.pipeline.slot, f"Nothing has come for {silent:.0f} s, not even a keepalive."
            )
        if self.heartbeat.is_lost():
            raise WalBroken.off(self.pipeline.slot, "A heartbeat has not come back.")

    # -- storing -----------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            while not self.inbox.closed:
                self._batch(
                    self.inbox.take(changes=BATCH_ROWS, linger=self.options.linger, wait=0.5)
                )
        except BaseException as error:  # It is raised again by the reader's thread.
            self._trouble = error
            self.inbox.close()

    def _batch(self, items: list[Transaction | Marker]) -> None:
        batch: list[Part] = []
        size = changes = 0
        for item in items:
            if isinstance(item, Marker):
                self._marker = max(self._marker, item.lsn)
                continue
            for part in parts(item):
                batch.append(part)
                changes += len(part.piece.messages)
                size += item.changes.size
                if changes >= BATCH_ROWS or size >= BATCH_BYTES or not part.is_last:
                    self._flush(batch, 0)
                    batch, size, changes = [], 0, 0
            item.changes.close()
        if batch or self._marker_is_due():
            self._flush(batch, self._marker)

    def _marker_is_due(self) -> bool:
        acknowledged = self.writer.ledger.acknowledged
        if acknowledged < self.pipeline.wanted <= self._marker:
            return True
        ahead = self._marker - acknowledged
        waited = time.monotonic() - self._written_at
        far = ahead >= self.options.idle_bytes and waited >= self.options.idle_seconds
        return far or (ahead > 0 and waited >= self.options.idle_at_most)

    def _progress(self, markers: int) -> Progress:
        # The time first: the heartbeat's thread writes it last, so it is never later than that
        # position's.
        sent_at, position = self.heartbeat.sent_at, self.heartbeat.position
        age = timedelta(seconds=time.monotonic() - sent_at)
        return Progress(self.pipeline.health.received, position, age, markers)

    def _flush(self, batch: list[Part], marker: int) -> None:
        if marker:
            failpoint("wal_marker")
        health = self.pipeline.health
        alone = 1 if marker and not batch else 0
        cursor = self.writer.write(batch, marker, self._progress(alone))
        health.markers += alone
        self._written_at = time.monotonic()
        self.feedback.advance(cursor)
        self.pipeline._durable(self.writer, cursor)
