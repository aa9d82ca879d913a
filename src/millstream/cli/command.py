"""A command: its help ends with an example, and an error becomes a message and an exit code.

With `--json` among the arguments every error is one JSON document, also that of a wrong command
line.

Arguments from Typer have no types, since Typer contains its own copy of click, in a module that
differs between versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import format_exception
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from millstream.cli.events import with_java
from millstream.cli.exit_codes import INTERRUPTED, MEANINGS, exit_code
from millstream.cli.output import print_error, print_interrupted
from millstream.errors import BadSetting, InternalError, MillstreamError
from millstream.observe import log

# mypy: disable-error-code="no-untyped-def, override"

# The base class of Typer's errors about the command line. Any, since Typer exports only this
# subclass.
UsageError: Any = typer.BadParameter.__bases__[0]

# Key in the context, which commands share with the program: is JSON wanted?
AS_JSON = "millstream.as_json"
# Key in the context: the handler that shows a command's events.
EVENTS = "millstream.events"


class Program(TyperGroup):
    """The program. Its help lists the commands, the exit codes and an example."""

    def format_help(self, ctx, formatter) -> None:
        """Print Typer's help, then the exit codes and an example."""
        super().format_help(ctx, formatter)
        codes = "\n".join(f"   {int(code)}  {meaning}" for code, meaning in MEANINGS.items())
        typer.echo(f" Exit codes:\n\n{codes}\n\n Example:\n\n   millstream demo --seconds 20\n")

    def make_context(self, info_name, args, parent=None, **extra):
        """Read the program's own options, and find out whether JSON is wanted before the command is
        known.
        """
        as_json = "--json" in args
        with _usage_told(as_json):
            ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[AS_JSON] = as_json
        return ctx

    def invoke(self, ctx) -> object:
        """Find the command, read its options, run it."""
        as_json = ctx.meta[AS_JSON]
        try:
            with _usage_told(as_json):
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            # Ctrl-C before the command has begun, or after its end.
            print_interrupted(as_json=as_json)
            raise typer.Exit(INTERRUPTED) from error


class Command(TyperCommand):
    """A command of the program `millstream`."""

    example = ""

    def format_help(self, ctx, formatter) -> None:
        """Print Typer's help, then the example on a line of its own, never wrapped, so that it can
        be copied.
        """
        super().format_help(ctx, formatter)
        typer.echo(f" Example:\n\n   {self.example}\n")

    def invoke(self, ctx) -> object:
        """Run; print errors of Millstream or the server instead of raising them."""
        as_json = bool(ctx.params.get("as_json"))
        try:
            return super().invoke(ctx)
        except (typer.Exit, UsageError, SystemExit, BrokenPipeError):
            raise
        except BaseException as error:
            if _is_interrupt(error):
                print_interrupted(as_json=as_json)
                raise typer.Exit(INTERRUPTED) from error
            if not isinstance(error, Exception) or isinstance(error, typer.Abort):
                raise
            told = _ours(error)
            print_error(with_java(told), as_json=as_json)
            raise typer.Exit(exit_code(told)) from error


def _ours(error) -> MillstreamError:
    """Convert an error to a MillstreamError; log the traceback of an unexpected one, which
    `--verbose` shows.
    """
    # Imported here, since a command that succeeds does not need it.
    from millstream.service.api_boundary import translate_error

    told = translate_error(error)
    if isinstance(told, InternalError):
        origin = told.__cause__ or error
        log.debug("unexpected error", traceback="".join(format_exception(origin)))
    return told


def _is_interrupt(error) -> bool:
    """Return True for Ctrl-C, which Typer converts to Abort during a prompt."""
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt)


@contextmanager
def _usage_told(as_json: bool) -> Iterator[None]:
    """Print an error in the command line: as JSON with --json, otherwise as Typer does."""
    try:
        yield
    except UsageError as error:
        # Words of the library that checks values.
        error.message = error.message.replace("Value error, ", "")
        if not as_json:
            raise
        path = error.ctx.command_path if error.ctx else "millstream"
        print_error(BadSetting(error.format_message(), hint=f"See: {path} --help"), as_json=True)
        raise typer.Exit(error.exit_code) from error


def with_example(example: str) -> type[Command]:
    """Return a command class with an example in its help."""
    return type("Command", (Command,), {"example": example})
