"""`millstream create`: create a stream table and populate it."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli import dry_run
from millstream.cli.commands.refresh import summary
from millstream.cli.entry_points import opened, served
from millstream.cli.options import AsJson, Direct, Dsn, SessionSettings, settings_of
from millstream.cli.output import out, print_json
from millstream.errors import BadSetting

EXAMPLE = 'millstream create totals "SELECT region, sum(amount) AS total FROM orders GROUP BY region" --schedule 1s'


class Capture(StrEnum):
    """How the changes of its sources may be captured."""

    TRIGGER = "trigger"
    AUTO = "auto"
    WAL = "wal"


class Mode(StrEnum):
    """How a stream table may be refreshed."""

    AUTO = "AUTO"
    DIFFERENTIAL = "DIFFERENTIAL"
    FULL = "FULL"


def run(
    ctx: typer.Context,
    dsn: Dsn,
    name: Annotated[str, typer.Argument(help="The new stream table: a name, or schema.name.")],
    query: Annotated[
        str | None, typer.Argument(help="Its defining query, or - to read it from stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the query from this file.")
    ] = None,
    schedule: Annotated[
        str,
        typer.Option(
            help="A duration (500ms, 1s, 5m, 1h), a cron expression, continuous, calculated or manual."
        ),
    ] = "1m",
    mode: Annotated[
        Mode, typer.Option(case_sensitive=False, metavar="MODE", help="AUTO, DIFFERENTIAL or FULL.")
    ] = Mode.AUTO,
    cdc_mode: Annotated[
        Capture | None,
        typer.Option(
            case_sensitive=False,
            metavar="MODE",
            help="trigger, auto or wal. Default: the setting cdc_mode.",
        ),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(
            help="The role that owns it, which must be allowed to read everything in the query."
        ),
    ] = None,
    settings: SessionSettings = None,
    assume_immutable: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FUNCTION",
            help="A STABLE function of yours that depends on its arguments alone; repeat it for more.",
        ),
    ] = None,
    initialize: Annotated[bool, typer.Option(help="Fill it now, or at its first refresh.")] = True,
    only_validate: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only print how the query would be maintained, or why it is refused."
        ),
    ] = False,
    direct: Direct = False,
    as_json: AsJson = False,
) -> None:
    """Create a stream table: a table that is kept equal to its query.

    A query that cannot be maintained is refused (exit code 3) with the position, the reason and a
    workaround. With --dry-run nothing is created: the query's columns, key, blocks and sources are
    shown.
    """
    text = read_query(query, file)
    capture, pinned = cdc_mode.value if cdc_mode else None, settings_of(settings)
    if only_validate:
        with opened(ctx, dsn, "planning the query") as client:
            validation = client.validate(
                text,
                owner=owner,
                cdc_mode=capture,
                schedule=schedule,
                settings=pinned,
                assume_immutable=assume_immutable or None,
            )
        dry_run.show(validation, as_json=as_json)
        return
    with served(ctx, dsn, f"creating {name}", direct=direct) as client:
        report = client.create_stream_table(
            name,
            text,
            schedule=schedule,
            refresh_mode=mode.value,
            initialize=initialize,
            cdc_mode=capture,
            owner=owner,
            settings=pinned,
            assume_immutable=assume_immutable or None,
        )
    if as_json:
        print_json({"name": name, "created": True, "report": report})
    elif report is None:
        out().print(f"{name} is created; its first refresh fills it.")
    else:
        out().print(f"{name} is created. {summary(report)}")
        for notice in report.notices:
            out().print(notice, style="dim", markup=False)


def read_query(text: str | None, file: Path | None) -> str:
    """Return the query, from the argument, the file or stdin."""
    if (text is None) == (file is None):
        raise typer.BadParameter("give the query either as an argument or with --file")
    if text is not None:
        return sys.stdin.read() if text == "-" else text
    assert file is not None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "") if isinstance(error, OSError) else "it is not UTF-8"
        raise BadSetting.of(
            "--file", str(file), f"a file that holds the query ({reason})"
        ) from error
