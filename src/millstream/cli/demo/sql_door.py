"""Use the service by SQL, as a user of the demo's database would: send a request, wait for the
answer, show the status.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
from rich.table import Table
from rich.text import Text

from millstream.cli.output import age, clock
from millstream.errors import RequestNotDone
from millstream.postgres.connection import Connection

STATUS = "SELECT * FROM millstream.status()"
# After this time without an answer, check that the service still runs.
PATIENCE = "5 s"


def ask(reader: Connection, statement: str) -> int:
    """Send a request to the service; return its id."""
    row = reader.execute(statement.encode()).fetchone()
    assert row is not None, "a function has a result"
    return int(row[0])


# Any: the answer is a JSON document.
def answer(reader: Connection, request: int, check: Callable[[], None]) -> dict[str, Any]:
    """Wait until a request is done; return the service's answer, or raise its error."""
    while True:
        try:
            row = reader.execute("CALL millstream.wait_for(%s, %s)", (request, PATIENCE)).fetchone()
        except psycopg.Error as error:
            if error.sqlstate != RequestNotDone.code:
                raise
            check()
        else:
            assert row is not None, "the procedure has a result"
            return dict(row[0])


def status_table(reader: Connection) -> Table:
    """Show `millstream.status()` transposed, since it has many columns and few rows."""
    cursor = reader.execute(STATUS)
    names = [column.name for column in cursor.description or ()]
    columns = list(
        zip(names, *([_cell(value) for value in row] for row in cursor.fetchall()), strict=True)
    )
    # Without lines, so that it fits into 80 characters.
    shown = Table(box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    for heading in columns[0]:
        shown.add_column(heading, overflow="fold")
    for row in columns[1:]:
        shown.add_row(*map(Text, row))
    return shown


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return clock(value)
        case timedelta():
            return age(value.total_seconds())
        case list():
            return ", ".join(map(str, value))
    return str(value)
