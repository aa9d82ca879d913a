"""`millstream init`: install the catalog into a database."""

from __future__ import annotations

import typer
from psycopg.conninfo import conninfo_to_dict

from millstream.cli.entry_points import opened
from millstream.cli.options import AsJson, Dsn
from millstream.cli.output import out, print_json

EXAMPLE = "millstream init"


def run(ctx: typer.Context, dsn: Dsn, as_json: AsJson = False) -> None:
    """Install Millstream's catalog (schemas millstream, millstream_changes, millstream_state).

    Safe to run again: an existing installation is upgraded. Every other command does
    the same when the catalog is missing; this one does nothing else.
    """
    with opened(ctx, dsn, "installing the catalog") as client:
        kept = len(client.status())
    database = str(conninfo_to_dict(dsn).get("dbname", ""))
    if as_json:
        print_json({"installed": True, "database": database, "stream_tables": kept})
    else:
        out().print(f'Millstream is installed in database "{database}", with {kept} stream tables.')
