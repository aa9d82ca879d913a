"""The guard of a stream table refuses whatever is not a refresh, whoever tries, in any way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from millstream.catalog import stream_tables
from millstream.catalog.installation import install
from millstream.catalog.target import write_guard
from millstream.postgres import relations
from millstream.postgres.connection import Connection

WRITES = {
    "insert": "INSERT INTO public.st VALUES (9, 9)",
    "insert of nothing": "INSERT INTO public.st SELECT 1, 1 WHERE false",
    "upsert": "INSERT INTO public.st VALUES (1, 9) ON CONFLICT (id) DO UPDATE SET v = 9",
    "update": "UPDATE public.st SET v = 9",
    "update of nothing": "UPDATE public.st SET v = 9 WHERE false",
    "delete": "DELETE FROM public.st",
    "truncate": "TRUNCATE public.st",
    "merge": "MERGE INTO public.st AS t USING (SELECT 1 AS id) AS s ON s.id = t.id WHEN MATCHED THEN DELETE",
    "writable cte": "WITH gone AS (DELETE FROM public.st RETURNING *) SELECT count(*) FROM gone",
    "function": "SELECT public.write_to_it()",
    "through a view": "INSERT INTO public.writable VALUES (9, 9)",
    "from a trigger": "INSERT INTO public.other VALUES (9, 9)",
    "cascade": "DELETE FROM public.parent WHERE id = 1",
    "copy": "COPY public.st FROM STDIN",
}
OBJECTS = """
    CREATE TABLE public.parent (id int PRIMARY KEY);
    INSERT INTO public.parent VALUES (1), (2);
    CREATE TABLE public.st (id int PRIMARY KEY REFERENCES public.parent ON DELETE CASCADE, v int);
    INSERT INTO public.st VALUES (1, 1), (2, 2);
    CREATE TABLE public.other (id int, v int);
    CREATE VIEW public.writable AS SELECT id, v FROM public.st;
    CREATE FUNCTION public.write_to_it() RETURNS void LANGUAGE sql AS 'DELETE FROM public.st';
    CREATE FUNCTION public.pass_on() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN DELETE FROM public.st; RETURN NULL; END';
    CREATE TRIGGER pass_on AFTER INSERT ON public.other FOR EACH STATEMENT EXECUTE FUNCTION public.pass_on();
    GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC;
"""
SESSIONS = {
    "the role that installed it": "",
    "a session that replicates": "SET session_replication_role = replica",
    "another role": "SET ROLE plain",
    "one who sets the setting": "SET millstream.write_permit = 'yes'",
    "one who sets it to nothing": "SET millstream.write_permit = ''",
}


@pytest.fixture
def guarded(conn: Connection) -> Iterator[int]:
    """A table with a guard, and its oid."""
    install.install(conn)
    conn.execute(OBJECTS)
    conn.execute("DO $$ BEGIN CREATE ROLE plain; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    relid = conn.execute("SELECT 'public.st'::regclass::oid").fetchall()[0][0]
    made = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public",
            name="st",
            query="",
            canonical_query="",
            schedule="1s",
            relid=relid,
        ),
    )
    write_guard.put(conn, made.id, relations.names(conn, [relid])[0])
    yield relid
    conn.execute("RESET ROLE; SET session_replication_role = origin; DROP OWNED BY plain")


def rows(conn: Connection) -> list[tuple[int, int]]:
    return conn.execute("SELECT id, v FROM public.st ORDER BY id").fetchall()


def attempt(conn: psycopg.Connection[tuple[int, ...]], statement: str) -> None:
    if not statement.startswith("COPY"):
        conn.execute(statement.encode())
        return
    with conn.cursor().copy(statement.encode()) as copy:
        copy.write_row((9, 9))


@pytest.mark.parametrize("session", SESSIONS.values(), ids=list(SESSIONS))
def test_no_statement_of_others_writes_to_a_stream_table(
    conn: Connection, guarded: int, session: str
) -> None:
    """Direct INSERT, UPDATE, DELETE and TRUNCATE were accepted and never noticed."""
    conn.execute(session.encode())
    passed = list[str]()
    # In a replicating session neither a user's trigger nor a foreign key fires.
    skipped = ("from a trigger", "cascade") if "replica" in session else ()
    for what, statement in WRITES.items():
        try:
            with conn.transaction():
                attempt(conn, statement)
            passed.append(what)
        except psycopg.errors.WrongObjectType:
            continue
    assert [what for what in passed if what not in skipped] == []
    assert rows(conn) == [(1, 1), (2, 2)]


def test_a_refresh_writes_in_its_own_transaction_and_to_its_own_table_only(
    conn: Connection, guarded: int
) -> None:
    with conn.transaction():
        with write_guard.write_permit(conn, "public.st"):
            conn.execute("UPDATE public.st SET v = 5 WHERE id = 1")
        with pytest.raises(psycopg.errors.WrongObjectType), conn.transaction():
            conn.execute("UPDATE public.st SET v = 6")
        with (
            write_guard.write_permit(conn, "public.other"),
            pytest.raises(psycopg.errors.WrongObjectType),
            conn.transaction(),
        ):
            conn.execute("UPDATE public.st SET v = 6")
    assert rows(conn) == [(1, 5), (2, 2)]


def test_a_permit_is_of_no_use_in_another_transaction(conn: Connection, guarded: int) -> None:
    permit = conn.execute(
        "SELECT millstream_changes.write_permit('public.st'::regclass)"
    ).fetchall()[0][0]
    conn.execute("SELECT set_config('millstream.write_permit', %s, false)", (permit,))
    with pytest.raises(psycopg.errors.WrongObjectType):
        conn.execute("UPDATE public.st SET v = 6")


def test_others_cannot_compute_a_permit_nor_read_the_secret(
    conn: Connection, guarded: int, another: Callable[[], Connection]
) -> None:
    stranger = another()
    stranger.execute("SET ROLE plain")
    for statement in (
        "SELECT millstream_changes.write_permit('public.st'::regclass)",
        "TABLE millstream.guard_secret",
        "CREATE TEMPORARY TABLE mine (id int); CREATE TRIGGER t BEFORE INSERT ON mine EXECUTE FUNCTION "
        "millstream_changes.guard()",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute(statement.encode())


def test_a_trigger_that_writes_back_in_a_refresh_is_refused(conn: Connection, guarded: int) -> None:
    conn.execute(
        "CREATE TRIGGER back AFTER UPDATE ON public.st FOR EACH STATEMENT EXECUTE FUNCTION public.pass_on()"
    )
    with (
        pytest.raises(psycopg.errors.WrongObjectType),
        conn.transaction(),
        write_guard.write_permit(conn, "public.st"),
    ):
        conn.execute("UPDATE public.st SET v = 5")
    assert rows(conn) == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("tampering", "told"),
    [
        ("DROP TRIGGER millstream_guard ON public.st", "absent"),
        ("ALTER TABLE public.st DISABLE TRIGGER millstream_guard", "disabled"),
        ("ALTER TABLE public.st DISABLE TRIGGER ALL", "disabled"),
        ("ALTER TABLE public.st ENABLE TRIGGER millstream_guard", "not enabled always"),
        ("ALTER TABLE public.st ENABLE REPLICA TRIGGER millstream_guard", "not enabled always"),
        ("ALTER TRIGGER millstream_guard ON public.st RENAME TO other", "absent"),
        (
            "DROP TRIGGER millstream_guard ON public.st; CREATE TRIGGER millstream_guard BEFORE DELETE ON public.st "
            "EXECUTE FUNCTION millstream_changes.guard(); ALTER TABLE public.st ENABLE ALWAYS TRIGGER millstream_guard",
            "of another kind",
        ),
    ],
)
def test_a_guard_that_is_not_as_it_was_made_is_noticed_and_put_back(
    conn: Connection, guarded: int, tampering: str, told: str
) -> None:
    assert write_guard.broken_guards(conn, [guarded]) == {}
    conn.execute(tampering.encode())
    assert write_guard.broken_guards(conn, [guarded]) == {guarded: told}
    name = relations.names(conn, [guarded])[0]
    write_guard.put(conn, 1, name)
    assert write_guard.broken_guards(conn, [guarded]) == {}
    write_guard.remove(conn, 1, name)
    conn.execute("UPDATE public.st SET v = 6")
