"""`millstream verify`: compare a stream table with its query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from millstream.algebra.table import quoted
from millstream.cli.commands.refresh import check_names
from millstream.cli.entry_points import served
from millstream.cli.exit_codes import Exit
from millstream.cli.options import AsJson, Direct, Dsn
from millstream.cli.output import clock, number, out, print_json, table

if TYPE_CHECKING:
    from millstream.service.verification.verification import Verification

EXAMPLE = "millstream verify totals"


def run(
    ctx: typer.Context,
    dsn: Dsn,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="The stream tables.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    direct: Direct = False,
    as_json: AsJson = False,
) -> None:
    """Refresh, run the defining query at the same snapshot, and compare row by row.

    Exact while applications write; a row that was wrong before the refresh is still found. Sums of
    floating point numbers are compared to 12 digits. Ends with exit code 1 if a row is missing or
    extra.
    """
    if every == bool(names):
        raise typer.BadParameter("give the names of stream tables, or --all")
    with served(ctx, dsn, "verifying", direct=direct) as client:
        chosen = names or [quoted(one.schema, one.name) for one in client.status()]
        check_names(client, chosen)
        results = [client.verify(name) for name in chosen]
    if as_json:
        print_json(results)
    else:
        for result in results:
            _show(result)
    if not all(result.ok for result in results):
        raise typer.Exit(Exit.CHECK_FAILED)


def verdict(result: Verification) -> Text:
    """Describe a verification in one line."""
    sign, found = (
        (
            ("✓ ", "bold green"),
            f"equals its query: {number(result.rows)} rows, none missing, none extra",
        )
        if result.ok
        else (
            ("✗ ", "bold red"),
            f"differs from its query: {number(result.missing)} rows missing, {number(result.extra)} extra",
        )
    )
    rounded = f" ({', '.join(result.rounded)} to 12 digits)" if result.rounded else ""
    return Text.assemble(
        sign, (result.name, "bold"), f" {found}{rounded}, at {clock(result.data_timestamp)}"
    )


def _show(result: Verification) -> None:
    out().print(verdict(result))
    if result.sample:
        rows = [(str(one["side"]), str(one["row"])) for one in result.sample]
        out().print(table("", ("side", "row"), rows))
