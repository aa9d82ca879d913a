"""The two roles for users: granted where an administrator has made them, and made by nobody else."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

from millstream.bundled.server import Server, embedded
from millstream.catalog.installation import install, roles
from millstream.postgres.connection import Connection, connect

READABLE = """
    SELECT r.rolname FROM pg_roles AS r
    WHERE r.rolname LIKE 'millstream%' AND has_schema_privilege(r.oid, 'millstream', 'USAGE')
        AND has_table_privilege(r.oid, 'millstream.stream_tables_info', 'SELECT')
        AND has_function_privilege(r.oid, 'millstream.slot_health()', 'EXECUTE')
        AND has_function_privilege(r.oid, 'millstream.check_cdc_health()', 'EXECUTE')
    ORDER BY 1
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own, since roles belong to a server."""
    bindir = os.environ.get("MILLSTREAM_TEST_BINDIR") or None
    with embedded(bindir=bindir, settings={"fsync": "off"}) as running:
        with psycopg.connect(running.dsn, autocommit=True) as admin:
            admin.execute(
                "CREATE ROLE tester SUPERUSER LOGIN; CREATE ROLE mill LOGIN; CREATE ROLE other LOGIN"
            )
        yield running


@pytest.fixture
def mill(database: str, conn: Connection) -> Iterator[Connection]:
    """A session of the service role, which may create schemas and no roles."""
    conn.execute("DROP ROLE IF EXISTS millstream_reader, millstream_operator")
    conn.execute(
        "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO mill', current_database()); END $$"
    )
    with connect(database.replace("tester@", "mill@")) as connected:
        yield connected
    conn.execute("DROP OWNED BY mill CASCADE")
    conn.execute("DROP ROLE IF EXISTS millstream_reader, millstream_operator")


def readable(conn: Connection) -> list[str]:
    return [name for (name,) in conn.execute(READABLE)]


def test_no_role_is_made_by_us(mill: Connection, conn: Connection) -> None:
    install.install(mill)
    assert (
        conn.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'millstream%'").fetchall()
        == []
    )


def test_roles_that_are_there_are_granted_at_install(mill: Connection, conn: Connection) -> None:
    conn.execute("CREATE ROLE millstream_reader; CREATE ROLE millstream_operator")
    install.install(mill)
    assert readable(conn) == [roles.OPERATOR, roles.READER]


def test_roles_that_are_made_later_are_granted_by_the_next_command(
    mill: Connection, conn: Connection
) -> None:
    install.install(mill)
    conn.execute("CREATE ROLE millstream_reader")
    install.install(mill)
    assert readable(conn) == [roles.READER]
    install.uninstall(mill)
    conn.execute("DROP ROLE millstream_reader")


def test_a_role_that_others_can_add_members_to_is_granted_nothing(
    mill: Connection, conn: Connection
) -> None:
    """A role belongs to the whole server: somebody else may have made it, for a catalog of their
    own.
    """
    conn.execute(
        "CREATE ROLE millstream_reader; GRANT millstream_reader TO other WITH ADMIN OPTION"
    )
    install.install(mill)
    assert readable(conn) == []
    conn.execute(
        "REVOKE millstream_reader FROM other; GRANT millstream_reader TO mill WITH ADMIN OPTION"
    )
    install.install(mill)
    assert readable(conn) == [roles.READER]
