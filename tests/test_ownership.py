"""Who could have written a file, with real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream import ownership

STRANGER = 12_345
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "a" / "b" / "file"
    made.parent.mkdir(parents=True, mode=0o700)
    made.write_text("x")
    made.chmod(0o644)
    return made


def test_our_own_file_is_trusted(file: Path) -> None:
    assert ownership.distrust(file) is None
    with file.open("rb") as opened:
        assert ownership.distrust_opened(opened, file) is None


def test_a_file_that_everybody_may_write_to_is_not(file: Path) -> None:
    file.chmod(0o646)
    assert ownership.distrust(file) == f"everybody may write to {file}"
    with file.open("rb") as opened:
        assert ownership.distrust_opened(opened, file) == f"everybody may write to {file}"


@AS_ROOT
def test_a_file_that_a_group_may_write_to_is_not(file: Path) -> None:
    os.chown(file, 0, STRANGER)
    assert ownership.distrust(file) is None
    file.chmod(0o664)
    assert ownership.distrust(file) == f"a group may write to {file}"


@AS_ROOT
def test_the_group_that_a_user_has_alone_is_no_other(file: Path) -> None:
    os.chown(file, 0, 0)
    file.chmod(0o664)
    assert ownership.distrust(file) is None


@AS_ROOT
def test_a_file_of_another_user_is_not_trusted(file: Path) -> None:
    os.chown(file, STRANGER, STRANGER)
    assert ownership.distrust(file) == f"{file} belongs to user {STRANGER}"


def test_a_directory_that_others_may_write_to_betrays_what_is_below(file: Path) -> None:
    above = file.parent.parent
    above.chmod(0o777)
    assert ownership.distrust(file) == f"everybody may write to {above}"
    # Sticky: others can neither remove nor rename what is ours.
    above.chmod(0o1777)
    assert ownership.distrust(file) is None
    # But they could have put the file there before us, if the directory it is in is the one.
    file.parent.chmod(0o1777)
    assert ownership.distrust(file.parent) == f"everybody may write to {file.parent}"


@AS_ROOT
def test_a_link_is_followed_and_who_made_it_counts(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    assert ownership.distrust(link) is None
    file.parent.chmod(0o777)
    assert ownership.distrust(link) == f"everybody may write to {file.parent}"
    file.parent.chmod(0o700)
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    assert ownership.distrust(link) == f"{link} belongs to user {STRANGER}"
    with link.open("rb") as opened:
        assert ownership.distrust_opened(opened, link) == f"{link} belongs to user {STRANGER}"


@AS_ROOT
def test_what_was_opened_counts_and_not_what_is_there_since(file: Path) -> None:
    os.chown(file, STRANGER, STRANGER)
    with file.open("rb") as opened:
        file.unlink()
        file.write_text("ours")
        assert ownership.distrust_opened(opened, file) == f"{file} belongs to user {STRANGER}"
