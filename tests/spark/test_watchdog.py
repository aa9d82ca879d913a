"""A Java whose Python was killed ends within seconds, whatever it is doing, and its files go with
it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.spark.watchdog import Watchdog

# Prints the process id of its Java, and waits to be killed.
SESSION = """
import time
from millstream.spark.session import start
spark = start("local[1]", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
print(spark.sparkContext._gateway.proc.pid, flush=True)
time.sleep(600)
"""


def until(is_so: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.1)
    return is_so()


def is_running(pid: int) -> bool:
    """True while the process runs; one that has ended and was not waited for is not running."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_java_that_does_not_end_by_itself_is_ended_when_its_python_was_killed(
    tmp_path: Path,
) -> None:
    """While Spark's optimizer worked, Java lived on for minutes, and its files for ever.

    A Java that is stopped stands for all that do not react.
    """
    environment = {
        name: value for name, value in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"
    }
    with subprocess.Popen(
        [sys.executable, "-c", SESSION], env={**environment, "SPARK_LOCAL_DIRS": str(tmp_path)},
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as python:  # fmt: skip
        assert python.stdout is not None
        java = int(python.stdout.readline())
        assert list(tmp_path.iterdir()) != []
        os.kill(java, signal.SIGSTOP)
        # To the whole group, as a supervisor does it.
        os.killpg(python.pid, signal.SIGTERM)
        python.kill()
    try:
        assert until(lambda: not is_running(java))
    finally:
        if is_running(java):
            os.kill(java, signal.SIGKILL)
    assert until(lambda: list(tmp_path.iterdir()) == [])


def test_a_process_that_is_no_java_is_left_alone(tmp_path: Path) -> None:
    """Java's number can be that of another process by then."""
    with subprocess.Popen(["sleep", "600"]) as stranger:
        watchdog, private = Watchdog(stranger.pid, [tmp_path / "private"]), tmp_path / "private"
        private.mkdir()
        assert watchdog._process.stdin is not None
        watchdog._process.stdin.close()
        assert watchdog._process.wait(60) == 0
        assert stranger.poll() is None
        assert not private.exists()
        stranger.kill()


def test_a_watch_that_is_released_touches_nothing(tmp_path: Path) -> None:
    watchdog = Watchdog(os.getpid(), [tmp_path])
    watchdog.release()
    assert watchdog._process.returncode == 0
    assert tmp_path.exists()
