"""Run scripts in processes that are forked from one that has imported everything.

Importing PySpark and Millstream takes three seconds, and the tests of crashes start some hundred
processes. A forked process is one like any other: it opens its own connections, and SIGKILL ends
it.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from tempfile import TemporaryDirectory

# What the scripts import, at their start or within a verb.
_PRELOADED = (
    "pandas",
    "millstream.client",
    "millstream.capture.transition.transitions",
    "millstream.testing.forks",
    "pyspark.sql",
)
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(_PRELOADED))


def run(
    script: Path, *arguments: str, environment: Mapping[str, str], timeout: float
) -> CompletedProcess[str]:
    """Run a script to its end, in exactly this environment."""
    with TemporaryDirectory(prefix="millstream-fork-") as directory:
        output, trouble = Path(directory) / "output", Path(directory) / "trouble"
        # A process that is killed early has not opened them.
        output.touch()
        trouble.touch()
        process = _CONTEXT.Process(
            target=_main,
            args=(str(script), arguments, dict(environment), str(output), str(trouble)),
            daemon=True,
        )
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise TimeoutExpired(
                [str(script), *arguments], timeout, output.read_text(), trouble.read_text()
            )
        return CompletedProcess(
            [str(script), *arguments], process.exitcode, output.read_text(), trouble.read_text()
        )


def _main(
    script: str, arguments: tuple[str, ...], environment: dict[str, str], output: str, trouble: str
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for path, stream in ((output, sys.stdout), (trouble, sys.stderr)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, stream.fileno())
        os.close(file)
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
