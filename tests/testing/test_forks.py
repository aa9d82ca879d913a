"""Scripts in forked processes end as processes do."""

from __future__ import annotations

from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from millstream.testing import forks


def script(directory: Path, text: str) -> Path:
    file = directory / "script.py"
    file.write_text(text)
    return file


def test_a_script_has_its_arguments_and_exactly_its_environment(tmp_path: Path) -> None:
    file = script(
        tmp_path,
        "import os, sys; print(sys.argv[1:], sorted(os.environ)); print('aside', file=sys.stderr)",
    )
    done = forks.run(file, "one", "two", environment={"ONLY": "1"}, timeout=90)
    assert done.returncode == 0
    assert done.stdout == "['one', 'two'] ['ONLY']\n"
    assert done.stderr == "aside\n"


@pytest.mark.parametrize(
    ("text", "code"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_the_exit_code_is_the_scripts(tmp_path: Path, text: str, code: int) -> None:
    assert forks.run(script(tmp_path, text), environment={}, timeout=90).returncode == code


def test_an_error_is_printed_and_the_code_is_1(tmp_path: Path) -> None:
    done = forks.run(script(tmp_path, "1 / 0"), environment={}, timeout=90)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_a_script_that_does_not_end_is_killed(tmp_path: Path) -> None:
    file = script(tmp_path, "import time\nwhile True: time.sleep(1)")
    with pytest.raises(TimeoutExpired):
        forks.run(file, environment={}, timeout=1)
