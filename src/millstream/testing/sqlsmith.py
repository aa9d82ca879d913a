"""Queries that SQLsmith writes: https://github.com/anse1/sqlsmith, a package of Debian.

It knows nothing of Millstream and combines what the server's catalog has, types, operators,
functions and tables, so it writes queries that nobody here would have thought of.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from millstream.postgres.connection import Connection, connect
from millstream.postgres.sql_files import load

SQL = load("millstream.testing", "sqlsmith.sql")
CHANGES = tuple(SQL[name] for name in ("change_1", "change_2", "change_3"))

_READ_BY_IT = "read_by_sqlsmith"
_SAMPLED = re.compile(r"tablesample \w+ \([^)]*\)")


def installed() -> bool:
    """Whether the program is on the path."""
    return shutil.which("sqlsmith") is not None


def queries(conn: Connection, number: int, seed: int) -> Iterator[str]:
    """Write queries over the tables of this module; yield those that PostgreSQL runs, and whose
    result does not depend on the order in which rows are stored.

    The tables are made in the database of `conn`, and in another one of the same server for
    SQLsmith to read.
    """
    conn.execute(SQL["tables"])
    conn.execute(SQL["fill"])
    conn.execute(SQL["backwards"])
    for query in _written(conn.info, number, seed):
        rows = _rows(conn, query)
        if rows is not None and rows == _rows(conn, query.replace("public.", "backwards.")):
            yield query


def _written(info: psycopg.ConnectionInfo, number: int, seed: int) -> list[str]:
    # Its libpq may be older than ours and not know all of our parameters.
    dsn = make_conninfo(
        host=info.host, port=info.port, user=info.user, password=info.password, dbname=info.dbname
    )
    with connect(dsn) as admin:
        name = sql.Identifier(_READ_BY_IT)
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(name))
        admin.execute(sql.SQL("CREATE DATABASE {}").format(name))
    target = make_conninfo(dsn, dbname=_READ_BY_IT)
    with connect(target) as read:
        read.execute(SQL["tables"])
        read.execute(SQL["fill"])
        read.execute("SET allow_system_table_mods = on")
        read.execute(SQL["hide"])
    command = ["sqlsmith", f"--target={target}", "--dry-run", "--exclude-catalog"]
    command += [f"--max-queries={number}", f"--seed={seed}"]
    # Its exit code is 1 after the last query, too.
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    texts = (_SAMPLED.sub("", text).strip() for text in printed.split(";\n"))
    return [text for text in texts if text.lower().startswith(("select", "with"))]


def _rows(conn: Connection, query: str) -> Counter[str] | None:
    """Return the rows of a query; None if PostgreSQL does not run it within two seconds."""
    try:
        with conn.transaction(force_rollback=True):
            conn.execute("SET LOCAL statement_timeout = '2s'")
            return Counter(map(repr, conn.execute(query.encode()).fetchall()))
    except psycopg.Error:
        return None
