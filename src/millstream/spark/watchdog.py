"""End Java and remove its files after this process was killed.

Java notices the end of its standard input and shuts down. While Spark's optimizer works on a large
query, that takes minutes, and a Java that hangs never ends. So a shell process watches each Java:
its standard input is a pipe from this process, which is closed when this process ends, for any
reason. Then Java has GRACE seconds; the first Java, which writes the class archive, has ARCHIVING
seconds.

    this process ──pipe──▶ shell      end of the pipe: wait for Java, SIGKILL, remove the private directories
                 ──line──▶ shell      Java was seen to have ended: nothing to do
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# Seconds for Java's shutdown, and for the shutdown of one that writes the class archive (see
# `class_archive`).
GRACE = 5
ARCHIVING = 60

# Process ids are reused, so the shell signals the process only if it is still a Java.
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
    """The shell that watches one Java."""

    def __init__(self, java: int, directories: Sequence[Path], *, grace: int = GRACE) -> None:
        # In a session of its own: signals of a terminal or supervisor to our process group must not
        # end it.
        self._process = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                _SCRIPT,
                "millstream-watchdog",
                str(java),
                str(grace),
                *map(str, directories),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """End the watch: Java has ended, and its process id may soon be reused."""
        # The shell may have ended too, after it saw Java end.
        with suppress(OSError):
            self._process.communicate(b"ended\n")
