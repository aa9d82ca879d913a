"""`millstream uninstall`: remove Millstream from a database."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millstream.cli.entry_points import opened
from millstream.cli.options import AsJson, Dsn
from millstream.cli.output import out, print_json

EXAMPLE = "millstream uninstall --yes"


def run(
    ctx: typer.Context,
    dsn: Dsn,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also drop the objects that depend on stream tables.")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Keep the stream tables as ordinary tables.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove all stream tables, their triggers and the catalog; your own tables stay as they are."""
    if not yes and not sys.stdin.isatty():
        raise typer.BadParameter("give --yes: all stream tables of this database are dropped")
    if not yes:
        typer.confirm("Drop all stream tables of this database, and the catalog?", abort=True)
    with opened(ctx, dsn, "uninstalling") as client:
        client.uninstall(cascade=cascade, forget=forget)
    if as_json:
        print_json({"uninstalled": True})
    else:
        out().print("Millstream is removed from this database.")
