"""Give Spark directories that other users of the machine cannot read.

Spark's files hold rows: shuffles, blocks that do not fit into memory, tables on their way from
Python. By itself Spark writes them with mode 0644 into directories that everybody can enter. So
each Java gets directories of its own, of mode 0700:

    SPARK_LOCAL_DIRS, or spark.local.dir, or the temporary directory     one in each, for blocks and shuffles
    java.io.tmpdir, TMPDIR                                               the first of them, for all else

They are removed when this process ends. Executors on a cluster write where the cluster says.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "millstream-spark-"
# New files and directories are accessible only to their owner, wherever Java creates them.
UMASK = 0o077

# The directories of every Java that this process has started.
_made: list[Path] = []


def make(conf: Mapping[str, str]) -> tuple[Path, ...]:
    """Make the private directories for a Java with this configuration; there is at least one."""
    named = (
        os.environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir") or tempfile.gettempdir()
    )
    made = tuple(_private_in(parent) for parent in named.split(",") if parent)
    _made.extend(made)
    return made


def _private_in(parent: str) -> Path:
    # Spark would create missing directories with other modes.
    Path(parent).mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))


def java_option(directories: tuple[Path, ...]) -> str:
    """Return the Java option for the directory of temporary files."""
    return f'"-Djava.io.tmpdir={directories[0]}"'


@contextmanager
def environment(directories: tuple[Path, ...]) -> Iterator[None]:
    """Set the environment in which Java is started, for a `with` block.

    Spark's Python workers run in the working directory. Without PYTHONSAFEPATH they would import a
    module from there, whoever had put it there, before any other of its name.
    """
    changed = {
        "SPARK_LOCAL_DIRS": ",".join(map(str, directories)),
        "TMPDIR": str(directories[0]),
        "PYTHONSAFEPATH": "1",
    }
    former = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@atexit.register
def remove() -> None:
    """Remove all of them, with the files that a killed Java process has left behind."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)
