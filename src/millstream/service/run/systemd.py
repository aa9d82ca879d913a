"""Tell systemd that the service is ready, alive, or stopping. Does nothing if systemd did not start
it.

See sd_notify(3): datagrams to the socket that the environment names.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress


class Systemd:
    """The socket of the service manager, if there is one."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        microseconds = os.environ.get("WATCHDOG_USEC", "")
        # Half of the time after which systemd would restart the service.
        self._every = (
            int(microseconds) / 2e6 if microseconds.isdigit() and self._is_for_us() else None
        )
        self._told_at = float("-inf")

    def ready(self, status: str) -> None:
        """Tell systemd that the service works; `systemctl status` shows `status`."""
        self._tell(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """Set the status."""
        self._tell(f"STATUS={status}")

    def stopping(self) -> None:
        """Tell systemd that the service is stopping."""
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """Tell systemd that the loop is alive.

        It is called at each turn; systemd restarts a service that hangs.
        """
        if self._every is not None and time.monotonic() - self._told_at >= self._every:
            self._told_at = time.monotonic()
            self._tell("WATCHDOG=1")

    @property
    def longest_sleep(self) -> float:
        """Seconds that the loop may sleep."""
        return self._every if self._every is not None else float("inf")

    def _is_for_us(self) -> bool:
        return os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())

    def _tell(self, message: str) -> None:
        if not self._address:
            return
        # An address that begins with @ is in the abstract namespace.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # An error of the socket must not end the service.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(message.encode(), address)
