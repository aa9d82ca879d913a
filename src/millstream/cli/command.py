"""A command: ends its help in an example, and an error in a message and an exit code.

The methods have no types on what Typer hands them: it brings its own copy of click, whose place
differs from version to version.
"""

from __future__ import annotations

import typer
from typer.core import TyperCommand, TyperGroup

from millstream.cli.exits import MEANINGS, exit_code
from millstream.cli.output import print_error
from millstream.errors import MillstreamError

# mypy: disable-error-code="no-untyped-def, override"


class Program(TyperGroup):
    """The program itself: its help lists the commands, the exit codes and an example."""

    def format_help(self, ctx, formatter) -> None:
        """Typer's help, then what is missing there."""
        super().format_help(ctx, formatter)
        codes = "\n".join(f"   {int(code)}  {meaning}" for code, meaning in MEANINGS.items())
        typer.echo(f" Exit codes:\n\n{codes}\n\n Example:\n\n   millstream demo --seconds 20\n")


class Command(TyperCommand):
    """A command of the program `millstream`."""

    example = ""

    def format_help(self, ctx, formatter) -> None:
        """Typer's help, then the example; on a line of its own, never wrapped, ready to be copied."""
        super().format_help(ctx, formatter)
        typer.echo(f" Example:\n\n   {self.example}\n")

    def invoke(self, ctx) -> object:
        """Run; an error of ours is printed, not raised."""
        try:
            return super().invoke(ctx)
        except MillstreamError as error:
            print_error(error, as_json=bool(ctx.params.get("as_json")))
            raise typer.Exit(exit_code(error)) from error


def with_example(example: str) -> type[Command]:
    """The command class for one command, which carries its example."""
    return type("Command", (Command,), {"example": example})
