"""The program: its version, its commands, its help."""

from __future__ import annotations

import shlex
from types import ModuleType

import pytest
import typer
from tests.cli.conftest import Line

from millstream.cli.app import COMMANDS, app, name_of
from millstream.cli.exit_codes import MEANINGS


def test_the_version_is_printed(line: Line) -> None:
    assert line("--version").out.startswith("millstream ")


NAMES = [name_of(command) for command in COMMANDS]


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_help_ends_in_an_example_of_the_command(line: Line, command: object) -> None:
    name, example = name_of(command), command.EXAMPLE  # type: ignore[attr-defined, arg-type]  # A module.
    ended = line(name, "--help")
    assert ended.code == 0
    assert ended.out.rstrip().endswith(example)
    assert shlex.split(example)[:2] == ["millstream", name]


def test_the_programs_help_lists_commands_exit_codes_and_an_example(line: Line) -> None:
    out = line("--help").out
    assert all(name in out for name in NAMES)
    assert all(meaning in out for meaning in MEANINGS.values())
    assert out.rstrip().endswith("millstream demo --seconds 20")


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_the_summary_of_a_command_is_one_line_in_the_list(command: ModuleType) -> None:
    """The lines of the code were lines of the list, broken in the middle of a sentence."""
    program = typer.main.get_command(app)
    assert isinstance(program, typer.core.TyperGroup)
    summary = program.commands[name_of(command)].short_help
    assert summary is not None
    assert summary.endswith(".")
    assert "\n" not in summary
