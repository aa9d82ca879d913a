"""`millstream refresh`: bring stream tables up to date now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from millstream.cli.entry_points import opened, served
from millstream.cli.options import AsJson, Direct, Dsn
from millstream.cli.output import (
    coloured,
    err,
    milliseconds,
    moment,
    number,
    out,
    print_json,
    table,
)

if TYPE_CHECKING:
    from millstream.client import Millstream
    from millstream.refresh.report import RefreshReport
    from millstream.service.requests.ask import ServiceClient

EXAMPLE = "millstream refresh totals"

COLUMNS = (
    "stream table",
    "action",
    "reason",
    "#read",
    "#inserted",
    "#updated",
    "#deleted",
    "#time",
    "as of",
)


def run(
    ctx: typer.Context,
    dsn: Dsn,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="The stream tables.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Refresh all stream tables, at one snapshot.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Recompute the query in full and apply the difference.")
    ] = False,
    direct: Direct = False,
    as_json: AsJson = False,
) -> None:
    """Refresh stream tables now, whatever their schedule.

    With --all, all stream tables are refreshed in one transaction and show the same snapshot.
    """
    if every == bool(names):
        raise typer.BadParameter("give the names of stream tables, or --all")
    if every and full:
        raise typer.BadParameter("--full needs the names of stream tables")
    if names:
        with served(ctx, dsn, "refreshing", direct=direct) as client:
            check_names(client, names)
            reports = [client.refresh(name, full=full) for name in names]
    else:
        with opened(ctx, dsn, "refreshing") as connected:
            reports = connected.refresh_all()
    if as_json:
        print_json(reports)
    else:
        out().print(table("", COLUMNS, [_row(report) for report in reports]))
        for report in reports:
            for behind in report.held_back_by:
                err().print(
                    f"{report.name} has older data, because {behind}", style="yellow", markup=False
                )


def summary(report: RefreshReport) -> str:
    """Describe a refresh in one sentence."""
    return (
        f"{report.action}: {number(report.rows_read)} rows read, {number(report.rows_inserted)} inserted, "
        f"{number(report.rows_updated)} updated, {number(report.rows_deleted)} deleted "
        f"in {milliseconds(report.duration_ms)}."
    )


def check_names(client: Millstream | ServiceClient, names: list[str]) -> None:
    """Check that each name is that of a stream table, before work on the first one begins."""
    for name in names if len(names) > 1 else ():
        client.history(name, n=1)


def _row(report: RefreshReport) -> tuple[str | Text, ...]:
    return (
        report.name,
        coloured(report.action),
        report.reason,
        number(report.rows_read),
        number(report.rows_inserted),
        number(report.rows_updated),
        number(report.rows_deleted),
        milliseconds(report.duration_ms),
        moment(report.data_timestamp),
    )
