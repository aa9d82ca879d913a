"""The TPC-H tables, filled by `tpchgen-cli`: same scale, same rows, as dbgen makes them.

    lineitem n-1 orders n-1 customer n-1 nation n-1 region
    lineitem n-1 partsupp n-1 part
                 partsupp n-1 supplier n-1 nation

Scale 1 is 6 million lines, about 1 GB. Keys and indexes come when the rows are there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from psycopg import sql

from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load as statements

SQL = statements("millstream.testing.tpch", "schema.sql")

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")

_BLOCK = 1 << 20


def load(conn: Connection, scale: float) -> dict[str, int]:
    """Create and fill the tables; return the number of rows in each."""
    conn.execute(SQL["tables"])
    with tempfile.TemporaryDirectory(prefix="millstream-tpch-") as name:
        directory = Path(name)
        generate(scale, directory)
        for table in TABLES:
            _copy(conn, table, directory / f"{table}.csv")
    for step in ("keys", "indexes", "revenue", "statistics"):
        conn.execute(SQL[step])
    return sizes(conn)


def sizes(conn: Connection) -> dict[str, int]:
    """Return the number of rows in each table."""
    return dict(conn.execute(SQL["sizes"]).fetchall())


def generate(scale: float, directory: Path) -> None:
    """Write one CSV file per table."""
    command = [
        _generator(),
        "csv",
        "--scale-factor",
        str(scale),
        "--output-dir",
        str(directory),
        "--quiet",
    ]
    subprocess.run(command, check=True)


def _copy(conn: Connection, table: str, file: Path) -> None:
    statement = sql.SQL("COPY {} FROM STDIN (FORMAT csv, HEADER)").format(sql.Identifier(table))
    with conn.cursor() as cursor, cursor.copy(statement) as copy, file.open("rb") as rows:
        while block := rows.read(_BLOCK):
            copy.write(block)


def _generator() -> str:
    """Return the path of the program: beside this Python, as a wheel puts it there, or on the PATH."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("tpchgen-cli", path=places)
    if found is None:
        raise FileNotFoundError(
            "tpchgen-cli is not installed; install it with: pip install tpchgen-cli"
        )
    return found
