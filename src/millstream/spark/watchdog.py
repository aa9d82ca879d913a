"""End Java, and remove its files, after this process was killed.

Java sees by its standard input that this process is gone, and shuts down. While Spark's optimizer works on a large
query that takes minutes, and a Java that hangs never ends. So a shell watches beside each Java: its standard input is a
pipe from this process, which ends at the moment this process does, whatever ends it. Then Java has GRACE seconds;
the first one, which leaves its classes for the next, has ARCHIVING seconds.

    this process ──pipe──▶ shell      end of the pipe: wait for Java, SIGKILL, remove the private directories
                 ──line──▶ shell      Java was seen to have ended: nothing to do
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# Seconds that Java has for its shutdown, and for one that writes its class archive (see `class_archive`).
GRACE = 5
ARCHIVING = 60

# The shell sees the number of a process and not the process: it does not signal one that is no Java any more.
_SCRIPT = """
trap '' INT TERM HUP
read -r line && exit 0
java=$1
left=$(($2 * 5))
shift 2
while [ $left -gt 0 ] && kill -0 "$java" 2>/dev/null; do sleep 0.2; left=$((left - 1)); done
case $(cat "/proc/$java/comm" 2>/dev/null || ps -o comm= -p "$java" 2>/dev/null) in
    *java*) kill -KILL "$java" 2>/dev/null ;;
esac
rm -rf -- "$@"
"""


class Watchdog:
    """The shell that watches beside one Java."""

    def __init__(self, java: int, directories: Sequence[Path], *, grace: int = GRACE) -> None:
        # In a session of its own: what a terminal or a supervisor sends to our process group must not end it.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "millstream-watchdog", str(java), str(grace), *map(str, directories)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """End the watch: Java has ended, and its number may soon be that of another process."""
        with suppress(OSError):
            self._process.communicate(b"ended\n")
