"""Services for tests: in a thread of the test, or as processes that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.service.run.process import Process
from millstream.settings import Settings
from millstream.testing import oracle
from millstream.testing.waiting import wait_until


@contextmanager
def serving(dsn: str, spark: SparkSession, **settings: Any) -> Iterator[Process]:
    """Run a service in a thread; each of its refreshes is compared with PostgreSQL's answer.

    What comes out wrong is raised at the end.
    """
    wrong = list[BaseException]()

    def exact(now: Cut, job: Job, report: RefreshReport) -> None:
        try:
            oracle.check(now.conn, job.table.query, job.table.qualified)
        except AssertionError as error:
            wrong.append(error)
            raise

    def run() -> None:
        try:
            process.run()
        except BaseException as error:
            wrong.append(error)

    process = Process(dsn, lambda: Settings(**settings), spark, exact)
    thread = Thread(target=run, name="service", daemon=True)
    thread.start()
    try:
        yield process
    finally:
        process.stop()
        thread.join(90)
    assert not thread.is_alive(), "the service does not stop"
    if wrong:
        raise wrong[0]


@dataclass
class Running:
    """A process of `millstream run`, and its log."""

    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its process id, which it registers."""
        return self.popen.pid

    def kill(self) -> None:
        """End it as a loss of power would."""
        self.popen.kill()
        self.popen.wait(60)

    def stop(self, seconds: float = 90.0) -> int:
        """End it as systemd would; return its exit code."""
        self.popen.terminate()
        return self.popen.wait(seconds)

    def said(self, text: str) -> bool:
        """Return True once its log has this text."""
        return text in self.log.read_text(encoding="utf-8")


@contextmanager
def started(dsn: str, log: Path, **environment: str) -> Iterator[Running]:
    """Start a process for the length of the block."""
    with log.open("ab") as stderr:
        command = [sys.executable, "-m", "millstream", "run", "--dsn", dsn]
        popen = subprocess.Popen(command, stderr=stderr, env={**os.environ, **environment})
    running = Running(popen, log)
    try:
        yield running
    finally:
        if popen.poll() is None:
            # It may have been stopped, not ended.
            popen.send_signal(signal.SIGCONT)
            popen.kill()
            popen.wait(60)


def leader_pid(dsn: str) -> int | None:
    """Return the process id of the leader that is alive, as the database knows it; None while there
    is none.
    """
    query = (
        "SELECT s.pid FROM millstream.leadership AS l JOIN millstream.services AS s USING (instance)"
        " JOIN pg_stat_activity AS a ON a.pid = s.backend_pid AND a.backend_start = s.backend_start"
        " WHERE s.role = 'LEADER'"
    )
    try:
        with psycopg.connect(dsn, autocommit=True) as conn:
            row = conn.execute(query).fetchone()
            return int(row[0]) if row else None
    except psycopg.Error:
        # Not installed yet, or the server is down.
        return None


def wait_for_leader(dsn: str, other_than: int | None = None) -> int:
    """Wait until a process leads; `other_than`: another one than this."""

    def found() -> int | None:
        pid = leader_pid(dsn)
        return pid if pid != other_than else None

    pid = wait_until(found)
    assert pid is not None
    return pid
