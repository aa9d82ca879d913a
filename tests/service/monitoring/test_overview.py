"""One look at everything, for a role that may look and no other."""

from __future__ import annotations

import json

import pytest

from millstream.catalog import stream_tables
from millstream.catalog.installation import install
from millstream.cli.output import plain
from millstream.errors import NoRights, NotInstalled
from millstream.postgres.connection import Connection
from millstream.service.monitoring import overview


def test_it_shows_stream_tables_refreshes_and_what_is_wrong(
    conn: Connection, database: str
) -> None:
    install.install(conn)
    for name in ("fine", "failing"):
        stream_tables.add(
            conn,
            stream_tables.NewStreamTable(
                schema_name="public", name=name, query="", canonical_query="", schedule="1m"
            ),
        )
    failing = stream_tables.every(conn)[0]
    stream_tables.record_failure(conn, failing.id, NoRights("no"))
    with overview.watching(database) as session:
        shown = overview.look(session)
        assert [one["stream_table"] for one in shown.stream_tables] == [
            "public.failing",
            "public.fine",
        ]
        assert [one["errors"] for one in shown.stream_tables] == [1, 0]
        assert (shown.services, shown.sources, shown.slots, shown.refreshes) == ((), (), (), ())
        assert {one["check_name"] for one in shown.checks} >= {
            "service",
            "stream table public.failing",
        }
        # As JSON it is whole, and the second look sees what has changed since.
        assert json.loads(json.dumps(plain(shown)))["database"] == conn.info.dbname
        stream_tables.remove(conn, failing.id)
        assert [one["stream_table"] for one in overview.look(session).stream_tables] == [
            "public.fine"
        ]


def test_it_needs_the_catalog(database: str) -> None:
    with pytest.raises(NotInstalled), overview.watching(database):
        pass


def test_a_role_without_privileges_gets_the_grant_as_hint(conn: Connection, database: str) -> None:
    install.install(conn)
    role = f"stranger_{conn.info.dbname}"
    conn.execute(f"CREATE ROLE {role} LOGIN".encode())
    try:
        with overview.watching(database.replace("tester@", f"{role}@")) as session:
            with pytest.raises(NoRights) as caught:
                overview.look(session)
            assert caught.value.hint == f'As an administrator: GRANT millstream_reader TO "{role}";'
    finally:
        conn.execute(f"DROP ROLE {role}".encode())
