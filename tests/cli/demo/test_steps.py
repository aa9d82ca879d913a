"""The demo's steps: a line for each that is done."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from millstream.cli.demo.steps import ProgressSteps


def test_a_step_that_is_done_is_a_line_with_its_time() -> None:
    with (
        (console := Console(width=80)).capture() as printed,
        ProgressSteps(console).step("open the shop"),
    ):
        pass
    assert re.fullmatch(r"✓ open the shop  \d+\.\d s\n", printed.get())


def test_a_step_that_fails_is_not_called_done() -> None:
    with (
        (console := Console(width=80)).capture() as printed,
        pytest.raises(ZeroDivisionError),
        ProgressSteps(console).step("open the shop"),
    ):
        raise ZeroDivisionError
    assert "✓" not in printed.get()
