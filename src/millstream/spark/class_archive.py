"""Keep Java's loaded classes in an archive, so that later starts are faster.

Spark loads some twelve thousand classes; finding, reading and verifying them takes half of its
start. The first Java process that ends writes them to an archive, in the layout that they have in
memory; later processes map it (JEP 350). Java itself compares the archive with its class path, and
ignores it if they differ.

    spark-1a2b3c.jsa          the archive that is mapped
    spark-1a2b3c.4711.new     written by the Java of process 4711 when it ends; its first bytes are written last

It is in the user's cache directory, some 150 MB for each installed Spark, and may be deleted at any
time. It contains code: a directory to which other users could have written is not used, and an
archive of another user is deleted.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pyspark

from millstream import ownership
from millstream.observe import log

# In days. An archive that was not used for so long belongs to a Spark that is no longer installed.
FORGOTTEN = 30
_MAGIC = (0xF00BABA8).to_bytes(4, "little")

AT_EXIT = "-XX:ArchiveClassesAtExit"


def java_options(java: str, directory: Path | None = None) -> str:
    """Return the Java option that uses the archive, or writes one; "" if neither is possible.

    `java` is the version that the program prints, since another one has other classes.
    """
    directory = directory or _cache()
    if " " in str(directory):
        log.info("java's classes are not kept", directory=str(directory), why="a space in its name")
        return ""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := ownership.distrust(directory):
            log.warning("java's classes are not kept", directory=str(directory), why=reason)
            return ""
        archive = directory / f"spark-{_key(java)}.jsa"
        _delete_untrusted(directory)
        _adopt(archive)
        _forget(directory)
        if archive.exists():
            os.utime(archive)
            return f"-XX:SharedArchiveFile={archive} -Xshare:auto"
    except OSError as error:
        # Another process does the same at the same time, or the directory is not writable.
        log.info("java's classes are not kept", directory=str(directory), why=str(error))
        return ""
    return f"{AT_EXIT}={archive.with_suffix(f'.{os.getpid()}.new')}"


def _cache() -> Path:
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "millstream"


def _key(java: str) -> str:
    told = "\n".join([java, pyspark.__version__, str(Path(pyspark.__file__).parent)])
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def _delete_untrusted(directory: Path) -> None:
    """Delete archives that other users could have written."""
    for file in [*directory.glob("spark-*.jsa"), *directory.glob("spark-*.new")]:
        if reason := ownership.distrust(file):
            log.warning("an archive of java's classes is not trusted", file=str(file), why=reason)
            file.unlink()


def _adopt(archive: Path) -> None:
    """Use an archive that a Java has written; delete unfinished ones after some time."""
    for left in archive.parent.glob(f"{archive.stem}.*.new"):
        if archive.exists() or _age(left) > 1:
            left.unlink()
        elif _is_whole(left):
            left.rename(archive)


def _is_whole(left: Path) -> bool:
    with left.open("rb") as file:
        return file.read(4) == _MAGIC


def _forget(directory: Path) -> None:
    for archive in directory.glob("spark-*.jsa"):
        if _age(archive) > FORGOTTEN:
            archive.unlink()


def _age(file: Path) -> float:
    """Return the age of a file in days."""
    return (time.time() - file.stat().st_mtime) / 86_400
