"""Decide whether a file can be trusted, by who could have written it.

file or directory                                       trusted
owned by us or by root, writable by its owner only      yes
owned by another user                                   no
writable by all, or by a group with other members       no
a symbolic link that another user made                  no
below a directory that others may write to              no, unless that is sticky (as /tmp is)
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import IO


def distrust(path: Path) -> str | None:
    """Return why others could have written this file or directory, or have put it in its place;
    None where they cannot.

    >>> distrust(Path("/"))
    """
    # Not resolved: who made a link counts too.
    absolute = path.absolute()
    for part in (*reversed(absolute.parents), absolute):
        if reason := _distrust_status(part, part.lstat(), is_parent=part != absolute):
            return reason
    # Each part of a symbolic link's target is checked too.
    resolved = absolute.resolve()
    return None if resolved == absolute else distrust(resolved)


def distrust_opened(file: IO[bytes], path: Path) -> str | None:
    """Return why others could have written an open file, found at this path; None where they
    cannot.

    The open file is checked: another one may have its path by now.
    """
    return _distrust_status(path, path.lstat(), is_parent=False) or _distrust_status(
        path, os.fstat(file.fileno()), is_parent=False
    )


def _distrust_status(path: Path, found: os.stat_result, *, is_parent: bool) -> str | None:
    if found.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to {_user_name(found.st_uid)}"
    if stat.S_ISLNK(found.st_mode):
        # A link has no mode of its own.
        return None
    if is_parent and found.st_mode & stat.S_ISVTX:
        return None
    if found.st_mode & stat.S_IWOTH:
        return f"everybody may write to {path}"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid, found.st_uid):
        return f"a group may write to {path}"
    return None


def _is_private(gid: int, uid: int) -> bool:
    """True for the group that many systems make for each user, of the user's name and without other
    members.
    """
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _user_name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
