"""What Spark writes is closed to other users of the machine while it runs, and gone when it has
ended.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millstream.spark import private_files

# Rows reach the disk by a shuffle, a table that is persisted, a table from Python, and a file of a
# Python worker.
SESSION = """
import json, sys
from pathlib import Path
import pyarrow as pa
from pyspark import StorageLevel
from millstream.spark.session import start

def write(batches):
    import importlib.util, tempfile
    if importlib.util.find_spec("planted"):
        raise AssertionError("modules of the working directory are imported")
    for batch in batches:
        with tempfile.NamedTemporaryFile(delete=False) as made:
            made.write(b"rows")
        yield batch

conf = {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
spark = start("local[1]", conf)
frame = spark.createDataFrame(pa.table({"a": list(range(10_000))})).mapInArrow(write, "a long")
frame = frame.repartition(3, "a").persist(StorageLevel.DISK_ONLY)
assert frame.groupBy((frame.a % 7).alias("k")).count().count() == 7
found = {str(path): path.lstat().st_mode for path in Path(sys.argv[1]).rglob("*")}
print(json.dumps(found))
"""


def test_rows_that_spark_writes_are_closed_to_others_and_removed(tmp_path: Path) -> None:
    """The bug: shuffle files had mode 0644, in directories of mode 0755 below the temporary
    directory.
    """
    temporary, prepared = tmp_path / "tmp", tmp_path / "prepared"
    temporary.mkdir()
    temporary.chmod(0o755)
    prepared.mkdir()
    # Whoever prepares the directory that a command runs in would have it imported by Spark's Python
    # workers.
    (prepared / "planted.py").touch()
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"}
    ended = subprocess.run(
        [sys.executable, "-c", SESSION, str(temporary)],
        env={**environment, "TMPDIR": str(temporary)}, cwd=prepared, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = {Path(name): mode for name, mode in json.loads(ended.stdout).items()}
    assert {path.parent for path in found if path.parent == temporary} == {temporary}
    assert [
        oct(mode)
        for path, mode in found.items()
        if path.parent == temporary and stat.S_IMODE(mode) != 0o700
    ] == []
    written = [path for path, mode in found.items() if stat.S_ISREG(mode)]
    assert any(path.name.startswith("shuffle_") for path in written)
    assert any(path.name.startswith("rdd_") for path in written)
    assert any(path.name.startswith("tmp") for path in written)
    # Not even what is inside would be readable.
    assert {str(path): oct(mode) for path, mode in found.items() if mode & 0o077} == {}
    deadline = time.monotonic() + 30
    while list(temporary.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(temporary.iterdir()) == []


def test_each_directory_that_is_named_gets_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"spark.local.dir": f"{tmp_path}/a,{tmp_path}/b"}
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    made = private_files.make(conf)
    assert [path.parent.name for path in made] == ["a", "b"]
    # As Spark has it, the environment wins.
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "c"))
    (wins,) = private_files.make(conf)
    assert wins.parent.name == "c"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (*made, wins)} == {0o700}
    with private_files.environment(made):
        assert os.environ["SPARK_LOCAL_DIRS"] == f"{made[0]},{made[1]}"
    assert os.environ["SPARK_LOCAL_DIRS"] == str(tmp_path / "c")


def test_what_a_java_that_was_killed_has_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_files, "_made", [])
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    (made,) = private_files.make({})
    (made / "blockmgr").mkdir()
    (made / "blockmgr" / "shuffle_0").write_text("rows")
    private_files.remove()
    assert list(tmp_path.iterdir()) == []
