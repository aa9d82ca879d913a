"""Sources are held against TRUNCATE and rewrites while a cut reads them, and writers go on."""

from __future__ import annotations

import psycopg
import pytest

from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.refresh import source_locks
from millstream.refresh.source_locks import hold_sources


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_locks, "LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(source_locks, "TRIES", 1)


@pytest.fixture
def tables(writer: psycopg.Connection, conn: Connection) -> tuple[Name, Name]:
    """The tables a and b."""
    writer.execute("CREATE TABLE public.a (id int); CREATE TABLE public.b (id int)")
    oids = [
        row[0]
        for row in writer.execute("SELECT unnest(ARRAY['a'::regclass, 'b'::regclass])::oid::int8")
    ]
    one, other = (relations.names(conn, [oid])[0] for oid in oids)
    return one, other


def test_writers_go_on_and_a_truncate_waits(
    conn: Connection, writer: psycopg.Connection, tables: tuple[Name, Name]
) -> None:
    with hold_sources(conn, tables) as busy:
        assert busy == frozenset()
        writer.execute("INSERT INTO public.a VALUES (1)")
        writer.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            writer.execute("TRUNCATE public.a")
    writer.execute("TRUNCATE public.a")


def test_the_snapshot_is_taken_after_the_locks(
    conn: Connection, writer: psycopg.Connection, tables: tuple[Name, Name]
) -> None:
    with hold_sources(conn, tables):
        writer.execute("INSERT INTO public.a VALUES (1)")
        assert conn.execute("SELECT count(*) FROM public.a").fetchone() == (1,)
        writer.execute("INSERT INTO public.a VALUES (2)")
        assert conn.execute("SELECT count(*) FROM public.a").fetchone() == (1,)


def test_a_source_that_somebody_has_locked_goes_without_its_readers(
    conn: Connection, writer: psycopg.Connection, tables: tuple[Name, Name]
) -> None:
    with writer.transaction():
        writer.execute("LOCK TABLE public.a IN ACCESS EXCLUSIVE MODE")
        with hold_sources(conn, tables) as busy:
            assert busy == {tables[0]}
            assert conn.execute("SELECT count(*) FROM public.b").fetchone() == (0,)


def test_what_is_to_be_written_is_held_against_triggers(
    conn: Connection, writer: psycopg.Connection, tables: tuple[Name, Name]
) -> None:
    writer.execute(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    )
    writer.execute("SET lock_timeout = '50ms'")
    with (
        hold_sources(conn, [tables[0]], [tables[1]]),
        pytest.raises(psycopg.errors.LockNotAvailable),
    ):
        writer.execute("CREATE TRIGGER t AFTER INSERT ON public.b EXECUTE FUNCTION f()")
