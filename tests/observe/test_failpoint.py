"""Failpoints: they kill where they should, by SIGKILL, and nowhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from millstream.observe.failpoint import ALL, VARIABLE, failpoint

PASSING = """
from millstream.observe.failpoint import *
for name in ALL:
    print(name, flush=True)
    failpoint(name)
"""


def passed(armed: str | None) -> subprocess.CompletedProcess[str]:
    """Another process that passes every failpoint, and prints each before it does."""
    environment = {**os.environ, **({VARIABLE: armed} if armed else {})}
    return subprocess.run(
        [sys.executable, "-c", PASSING],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_unarmed_they_are_passed() -> None:
    done = passed(None)
    assert done.returncode == 0
    assert done.stdout.split() == list(ALL)


@pytest.mark.parametrize("armed", list(ALL))
def test_the_armed_one_kills_and_those_before_it_do_not(armed: str) -> None:
    done = passed(armed)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split()[-1] == armed


def test_an_unknown_name_is_an_error_in_the_code_and_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match="unknown failpoint 'tea_made'"):
        failpoint("tea_made")
    monkeypatch.setenv(VARIABLE, "tea_made")
    with pytest.raises(ValueError, match="MILLSTREAM_FAILPOINT is 'tea_made'"):
        failpoint("staged")
