"""Copy a database into another cluster as an administrator would: pg_dump, then pg_restore."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from millstream.bundled.server import Server, embedded


@contextmanager
def another_cluster(server: Server) -> Iterator[Server]:
    """Start a cluster of the same version, with the role that the suite's databases belong to."""
    with embedded(bindir=server.bindir, settings={"fsync": "off"}) as running:
        with psycopg.connect(running.dsn, autocommit=True) as admin:
            admin.execute("CREATE ROLE tester SUPERUSER LOGIN")
        yield running


def dump(server: Server, dsn: str, file: Path) -> None:
    """Write a database into a file."""
    command = [str(server.bindir / "pg_dump"), "-Fc", "-f", str(file), "-d", dsn]
    subprocess.run(command, check=True, capture_output=True)


def restore(server: Server, file: Path, name: str, *, shift: int = 0) -> str:
    """Make a database of that name from the file, after `shift` other tables have taken their oids;
    return its dsn.
    """
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        admin.execute(f'CREATE DATABASE "{name}"')
    dsn = server.dsn_for("tester", name)
    with psycopg.connect(dsn, autocommit=True) as conn:
        for number in range(shift):
            conn.execute(f"CREATE TABLE before_{number} (id int); DROP TABLE before_{number}")
    subprocess.run(
        [str(server.bindir / "pg_restore"), "-d", dsn, str(file)], check=True, capture_output=True
    )
    return dsn
