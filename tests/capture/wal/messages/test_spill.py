"""Changes that do not fit into memory go to disk; a disk that is full is told by its directory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from millstream.capture.wal.messages.spill import SpilledChanges
from millstream.errors import SpillFailed
from millstream.testing.disk import files_of_at_most


def test_a_full_disk_is_reported_at_once_with_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an OSError; and what was in the file's buffer was missed only when the rows were read
    back.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    changes = SpilledChanges([(0, {})])
    changes.tail = [b"x" * 1000] * 100
    changes.size = 100_000
    with files_of_at_most(50_000), pytest.raises(SpillFailed) as caught:
        changes.spill()
    assert (caught.value.directory, caught.value.retryable) == (str(tmp_path), True)
    assert str(tmp_path) in caught.value.hint
    changes.close()
