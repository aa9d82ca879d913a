"""The archive of Java's classes: left by the first Java that ends, used by those after it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millstream.spark import class_archive

MAGIC = bytes.fromhex("a8ab0bf0")
SESSION = """
import sys
from millstream.spark.session import start
start("local[1]", {"spark.driver.extraJavaOptions": sys.argv[1]}).stop()
"""
USE = "-XX:SharedArchiveFile="
LEAVE = "-XX:ArchiveClassesAtExit="


def _started(cache: Path, options: str = "") -> str:
    """Start Spark and end it; what stands on its standard output."""
    command = [sys.executable, "-c", SESSION, options]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_the_first_java_leaves_its_classes_and_the_next_takes_them(tmp_path: Path) -> None:
    assert _started(tmp_path) == ""
    left = tmp_path / "millstream"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and not any(
        file.read_bytes()[:4] == MAGIC for file in left.glob("*.new")
    ):
        time.sleep(0.2)
    log = tmp_path / "classes"
    assert _started(tmp_path, f"-Xlog:class+load:file={log}") == ""
    loaded = log.read_text()
    assert (
        len(re.findall(r"org\.apache\.spark\.\S+ source: shared objects file \(top\)", loaded))
        > 1_000
    )
    assert [file.suffix for file in left.iterdir()] == [".jsa"]


def test_what_is_not_finished_is_not_taken(tmp_path: Path) -> None:
    name = class_archive.java_options("java", tmp_path).removeprefix(LEAVE)
    Path(name).write_bytes(bytes(4_096))
    assert class_archive.java_options("java", tmp_path).startswith(LEAVE)
    Path(name).write_bytes(MAGIC + bytes(4_096))
    assert class_archive.java_options("java", tmp_path).startswith(USE)
    assert [file.suffix for file in tmp_path.iterdir()] == [".jsa"]


def test_another_java_has_an_archive_of_its_own(tmp_path: Path) -> None:
    Path(class_archive.java_options("java", tmp_path).removeprefix(LEAVE)).write_bytes(MAGIC)
    assert class_archive.java_options("java", tmp_path).startswith(USE)
    assert class_archive.java_options("another java", tmp_path).startswith(LEAVE)


def test_what_nobody_uses_is_thrown_away(tmp_path: Path) -> None:
    unfinished = Path(class_archive.java_options("java", tmp_path).removeprefix(LEAVE))
    forgotten = tmp_path / "spark-000000000000.jsa"
    for file, days in ((unfinished, 2), (forgotten, class_archive.FORGOTTEN + 1)):
        file.touch()
        os.utime(file, (0, time.time() - days * 86_400))
    assert class_archive.java_options("java", tmp_path).startswith(LEAVE)
    assert list(tmp_path.iterdir()) == []


def test_without_a_cache_directory_java_starts_without_an_archive(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert class_archive.java_options("java", tmp_path / "file" / "cache") == ""
    assert class_archive.java_options("java", tmp_path / "a path with spaces") == ""


def test_a_directory_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    """The bug: whoever could write there had its classes run in our Java."""
    Path(class_archive.java_options("java", tmp_path).removeprefix(LEAVE)).write_bytes(MAGIC)
    assert class_archive.java_options("java", tmp_path).startswith(USE)
    tmp_path.chmod(0o777)
    assert class_archive.java_options("java", tmp_path) == ""
    tmp_path.chmod(0o700)
    assert class_archive.java_options("java", tmp_path).startswith(USE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    os.chown(tmp_path, 12_345, 12_345)
    assert class_archive.java_options("java", tmp_path) == ""
    assert class_archive.java_options("java", tmp_path / "below") == ""


def test_an_archive_that_others_could_have_written_is_deleted(tmp_path: Path) -> None:
    left = Path(class_archive.java_options("java", tmp_path).removeprefix(LEAVE))
    left.write_bytes(MAGIC)
    left.chmod(0o666)
    assert class_archive.java_options("java", tmp_path).startswith(LEAVE)
    left.write_bytes(MAGIC)
    left.chmod(0o600)
    taken = Path(class_archive.java_options("java", tmp_path).split()[0].removeprefix(USE))
    taken.chmod(0o606)
    assert class_archive.java_options("java", tmp_path).startswith(LEAVE)
    assert list(tmp_path.iterdir()) == []
