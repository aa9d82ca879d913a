"""The program `millstream`: its commands, in the order in which a user meets them."""

from __future__ import annotations

import signal
from importlib.metadata import version
from inspect import cleandoc
from types import ModuleType
from typing import Annotated

import typer

from millstream.cli import demo, stdio
from millstream.cli.command import AS_JSON, EVENTS, Program, with_example
from millstream.cli.commands import (
    adopt,
    alter,
    create,
    doctor,
    drop,
    explain,
    health,
    history,
    init,
    refresh,
    run,
    settings,
    status,
    top,
    uninstall,
    verify,
)
from millstream.cli.commands import list as list_
from millstream.cli.entry_points import REAL
from millstream.cli.events import shown

# Each has an EXAMPLE that runs, and a function `run` whose parameters are its arguments and
# options.
COMMANDS: tuple[ModuleType, ...] = (
    demo,
    doctor,
    init,
    run,
    create,
    list_,
    status,
    top,
    refresh,
    history,
    explain,
    verify,
    alter,
    health,
    settings,
    adopt,
    drop,
    uninstall,
)

app = typer.Typer(
    name="millstream",
    cls=Program,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def name_of(command: ModuleType) -> str:
    """Return the command's name as typed by the user."""
    return command.__name__.rpartition(".")[2]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millstream {version('millstream')}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print what is being done, on stderr.")
    ] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Keeps SQL views over PostgreSQL fresh, incrementally, computing on Apache Spark."""
    ctx.meta[EVENTS] = ctx.with_resource(shown(verbose=verbose, as_json=ctx.meta[AS_JSON]))
    ctx.obj = ctx.obj or REAL


def summary_of(command: ModuleType) -> str:
    """Return the first paragraph of a command's help in one line, for the list of commands."""
    paragraph, _, _ = cleandoc(command.run.__doc__ or "").partition("\n\n")
    return " ".join(paragraph.split())


for _command in COMMANDS:
    app.command(
        name_of(_command), cls=with_example(_command.EXAMPLE), short_help=summary_of(_command)
    )(_command.run)


def main() -> None:
    """Run the installed program."""
    stdio.make_fit()
    try:
        app(prog_name="millstream")
    finally:
        # On the way out another Ctrl-C ends us at once, without a traceback; Java notices that we
        # are gone.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
