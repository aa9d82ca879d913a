"""The catalog's rows of upstreams: recorded as found, gone with either of the two, filled by an
upgrade.
"""

from __future__ import annotations

import pytest

from millstream.catalog import sources, stream_tables, upstreams
from millstream.catalog.installation import install
from millstream.catalog.upstreams import Upstream
from millstream.postgres.connection import Connection


def made(conn: Connection, name: str, query: str = "") -> int:
    """Record a stream table that has a table; return its id."""
    conn.execute(f"CREATE TABLE public.{name} (id int)".encode())
    relid = conn.execute("SELECT %s::regclass::oid", (f"public.{name}",)).fetchall()[0][0]
    table = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public",
            name=name,
            query=query,
            canonical_query=query,
            schedule="1s",
            relid=relid,
        ),
    )
    return table.id


def made_before(conn: Connection, name: str) -> int:
    """The same in a catalog of an older version, whose columns our statements do not know."""
    conn.execute(f"CREATE TABLE public.{name} (id int)".encode())
    statement = (
        "INSERT INTO millstream.stream_tables (schema_name, name, relid, query, canonical_query, refresh_mode, "
        "schedule) "
        "VALUES ('public', %s, %s::regclass, '', '', 'AUTO', '1s') RETURNING id"
    )
    return int(conn.execute(statement, (name, f"public.{name}")).fetchall()[0][0])


def test_what_is_put_replaces_what_was_there_and_goes_with_either_of_the_two(
    conn: Connection,
) -> None:
    install.install(conn)
    a, b, c = (made(conn, name) for name in "abc")
    upstreams.put(conn, a, [Upstream(b, ("view public.v",)), Upstream(c)])
    upstreams.put(conn, b, [Upstream(c)])
    assert upstreams.every(conn) == {
        a: [Upstream(b, ("view public.v",)), Upstream(c)],
        b: [Upstream(c)],
    }
    upstreams.put(conn, a, [Upstream(b)])
    assert upstreams.of(conn, a) == [Upstream(b)]
    stream_tables.remove(conn, b)
    assert upstreams.every(conn) == {}


def test_one_that_was_dropped_meanwhile_is_not_recorded(conn: Connection) -> None:
    install.install(conn)
    a = made(conn, "a")
    upstreams.put(conn, a, [Upstream(a + 100)])
    assert upstreams.every(conn) == {}


def test_those_that_name_a_relation_are_found_by_their_text_but_for_itself(
    conn: Connection,
) -> None:
    install.install(conn)
    a, b = made(conn, "a", "SELECT id FROM public.b"), made(conn, "b", "SELECT id FROM public.b")
    assert upstreams.queries_with_name(conn, "b") == [(a, "SELECT id FROM public.b")]
    assert upstreams.stream_tables_of(conn, [0]) == {}
    assert upstreams.names(conn) == {a: "public.a", b: "public.b"}


def test_an_upgrade_records_what_stream_tables_read(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = install.migrations()
    new = next(place for place, migration in enumerate(every) if migration.name == "upstreams")
    with monkeypatch.context() as patch:
        patch.setattr(install, "migrations", lambda: every[:new])
        install.install(conn)
        a, b = made_before(conn, "a"), made_before(conn, "b")
        relid = conn.execute("SELECT 'public.b'::regclass::oid").fetchall()[0][0]
        sources.reserve(conn, relid, "public", "b")
        sources.add_dependency(conn, a, relid, ["id"])
    install.install(conn)
    assert upstreams.every(conn) == {a: [Upstream(b)]}
