"""The data of `millstream top`, read by the SQL functions for monitoring.

It needs neither Spark nor the service role: members of `millstream_reader` may use it. A session of
a role that should not run functions of the catalog's owner, such as a superuser, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeAlias

import psycopg
from psycopg.rows import dict_row

from millstream.algebra.table import quoted
from millstream.catalog.installation import trust
from millstream.errors import NoRights, NotInstalled
from millstream.postgres.connection import Connection, session
from millstream.postgres.sql_files import load

_SQL = load("millstream.service.monitoring", "overview.sql")

# Rows as the functions return them; values have any type.
Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Overview:
    """The state of all stream tables, sources and the service at one moment."""

    database: str
    at: datetime
    services: tuple[Row, ...]
    stream_tables: tuple[Row, ...]
    """The stale ones first, then those with errors."""
    sources: tuple[Row, ...]
    slots: tuple[Row, ...]
    refreshes: tuple[Row, ...]
    """The last ones, newest first."""
    checks: tuple[Row, ...]
    """Those of `health_check` that are not OK."""

    def as_dict(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        return asdict(self)


@contextmanager
def watching(dsn: str) -> Iterator[Connection]:
    """Open a session that may read the catalog; raise an error if it may not."""
    with session(dsn) as conn:
        try:
            there = trust.check(conn)
        except NoRights:
            # The catalog belongs to another role; the first query shows whether this role may read
            # it.
            there = True
        if not there:
            raise NotInstalled.here(conn.info.dbname)
        conn.execute("SET default_transaction_read_only = on; SET statement_timeout = '30s'")
        yield conn


def look(conn: Connection, *, refreshes: int = 8) -> Overview:
    """Read everything once, at one snapshot."""
    try:
        with conn.transaction():
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            row = conn.execute("SELECT clock_timestamp(), current_database()::text").fetchall()[0]
            found = {name: _rows(conn, name, refreshes) for name in _SQL}
    except psycopg.errors.InsufficientPrivilege as error:
        role = str(conn.execute("SELECT current_user").fetchall()[0][0])
        grant = f"GRANT millstream_reader TO {quoted(role)};"
        raise NoRights.to("look at the stream tables", role=role, grant=grant) from error
    except (psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedTable) as error:
        raise NotInstalled.here(conn.info.dbname) from error
    return Overview(database=row[1], at=row[0], **found)


def _rows(conn: Connection, name: str, refreshes: int) -> tuple[Row, ...]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return tuple(cursor.execute(_SQL[name], {"refreshes": refreshes}))
