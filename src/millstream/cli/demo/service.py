"""The service of the demo: a process of `millstream run`, and its log.

The log goes to a file, since the demo uses the screen; its last lines are shown if something fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from millstream.errors import MillstreamError
from millstream.postgres.connection import Connection

# WAL capture needs the full old rows of the shop's tables. The timeout is short, so that the demo
# ends quickly.
ENVIRONMENT = {"MILLSTREAM_AUTO_REPLICA_IDENTITY": "true", "MILLSTREAM_SHUTDOWN_TIMEOUT": "5s"}
# Seconds from SIGTERM until the process is killed.
LONGEST_END = 30.0
LINES_SHOWN = 20

INSTALLED = "SELECT to_regprocedure('millstream.service_is_running()') IS NOT NULL"
RUNNING = "SELECT millstream.service_is_running()"


@dataclass
class DemoService:
    """A process of `millstream run`."""

    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise an error if it has ended by itself."""
        if self.process.poll() is not None:
            raise MillstreamError(f"the service has ended with exit code {self.process.returncode}")

    def wait_until_running(self, reader: Connection) -> None:
        """Wait until it has installed its catalog, and works."""
        while not (_is(reader, INSTALLED) and _is(reader, RUNNING)):
            self.check()
            time.sleep(0.05)

    def last_lines(self) -> str:
        """Return the last lines of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LINES_SHOWN:])

    def stop(self) -> None:
        """Send SIGTERM, as systemd would; kill the process if it does not end in time."""
        self.process.terminate()
        try:
            self.process.wait(LONGEST_END)
        finally:
            self.process.kill()
            self.process.wait()


@contextmanager
def running(dsn: str, log: Path, console: Console) -> Iterator[DemoService]:
    """Run a service for the length of a `with` block; show the end of its log if the block fails."""
    command = [sys.executable, "-m", "millstream", "run", "--dsn", dsn]
    with log.open("wb") as stderr:
        # In a session of its own, so that Ctrl-C reaches only the demo, which then stops the
        # service.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
        )  # fmt: skip
    service = DemoService(process, log)
    try:
        yield service
    except Exception:
        console.print(
            f"The end of the service's log:\n{service.last_lines()}", markup=False, soft_wrap=True
        )
        raise
    finally:
        service.stop()


def _is(reader: Connection, query: str) -> bool:
    row = reader.execute(query.encode()).fetchone()
    return bool(row and row[0])
