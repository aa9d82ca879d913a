"""A disk that is full, for the length of a `with` block."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from millstream.testing.disk import files_of_at_most


def test_no_file_grows_beyond_the_limit_and_afterwards_any_may(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = tmp_path / "file"
    with files_of_at_most(1000), pytest.raises(OSError, match="File too large"):
        file.write_bytes(b"x" * 2000)
    assert file.stat().st_size <= 1000
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
    file.write_bytes(b"x" * 2000)
