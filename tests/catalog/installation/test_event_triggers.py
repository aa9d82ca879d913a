"""Event triggers: the service hears of DDL, and users' DDL never fails because of them unless it is
to be refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millstream.bundled.server import Server, embedded
from millstream.capture.trigger import triggers
from millstream.catalog import sources, stream_tables
from millstream.catalog.installation import event_triggers, install
from millstream.postgres import relations
from millstream.postgres.connection import Connection, session

# As servers are by default.
PLAIN = {"max_prepared_transactions": "0", "fsync": "off"}

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, v int, unused int);
    CREATE TABLE other (id int);
    CREATE ROLE app LOGIN;
    GRANT ALL ON SCHEMA public TO app;
    ALTER TABLE t OWNER TO app; ALTER TABLE other OWNER TO app;
"""


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Server]:
    with embedded(settings=PLAIN) as running:
        yield running


@pytest.fixture
def read(conn: Connection) -> Iterator[Connection]:
    """A catalog in which a stream table reads two columns of t; a session of the owner of t."""
    conn.execute("DROP ROLE IF EXISTS app; " + TABLES)
    install.install(conn)
    relid = conn.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    id = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="shop", name="Sums", query="", canonical_query="", schedule="1s"
        ),
    ).id
    sources.reserve(conn, relid, "public", "t")
    sources.add_dependency(conn, id, relid, ["id", "v"])
    triggers.install(conn, relations.table(conn, relid), ["id", "v"])
    with psycopg.connect(conn.info.dsn, user="app", autocommit=True) as app:
        yield app
    conn.execute("DROP OWNED BY app CASCADE; DROP ROLE app")


def test_ddl_of_others_wakes_the_service_and_nothing_else_does(plain_server: Server) -> None:
    with (
        psycopg.connect(plain_server.dsn, autocommit=True) as conn,
        session(plain_server.dsn) as ours,
    ):
        install.install(ours)
        assert event_triggers.are_there(ours)
        conn.execute("LISTEN millstream_wake")
        for statement, wakes in {
            "CREATE TABLE t (id int)": True,
            "ALTER TABLE t RENAME id TO key": True,
            "CREATE TEMPORARY TABLE aside (id int); ALTER TABLE aside ADD v int; DROP TABLE aside": False,
            "INSERT INTO t VALUES (1)": False,
            "CREATE VIEW v AS SELECT key FROM t": True,
            "DROP VIEW v": True,
            "BEGIN; ALTER TABLE t ADD v int; ROLLBACK": False,
            "DROP TABLE t": True,
        }.items():
            conn.execute(statement.encode())
            ours.execute("CREATE TABLE public.own (id int); DROP TABLE public.own")
            ours.execute("SELECT pg_notify('millstream_wake', 'end')")
            heard = [one.payload for one in conn.notifies(timeout=30, stop_after=2 if wakes else 1)]
            assert heard == (["ddl", "end"] if wakes else ["end"]), statement
        conn.execute("DROP SCHEMA millstream CASCADE; CREATE TABLE after (id int)")
        assert conn.execute("SELECT evtname FROM pg_event_trigger").fetchall() == []


BLOCKED = {
    "ALTER TABLE t RENAME v TO w": "column v of public.t is read",
    "ALTER TABLE t ALTER v TYPE bigint": "column v of public.t is read",
    "ALTER TABLE t DROP COLUMN v": "column v of public.t is read",
    "DROP TABLE t CASCADE": "table public.t is read",
}
ALLOWED = (
    "ALTER TABLE t RENAME unused TO spare",
    "ALTER TABLE t DROP COLUMN spare",
    "ALTER TABLE t ADD COLUMN unused int",
    "ALTER TABLE other ADD v int; DROP TABLE other",
    "CREATE TEMPORARY TABLE t (v int); ALTER TABLE t DROP COLUMN v; DROP TABLE t",
    "BEGIN; ALTER TABLE t ALTER unused TYPE text; PREPARE TRANSACTION 'ddl'",
    "ROLLBACK PREPARED 'ddl'",
)


def test_changes_of_used_columns_are_refused_if_the_setting_says_so(
    conn: Connection, read: Connection
) -> None:
    conn.execute("INSERT INTO millstream.settings (name, value) VALUES ('block_source_ddl', 'on')")
    for statement, said in BLOCKED.items():
        with pytest.raises(psycopg.errors.DependentObjectsStillExist, match=said) as refused:
            read.execute(statement.encode())
        assert refused.value.diag.message_detail == 'Stream tables: shop."Sums".'
    for statement in ALLOWED:
        for one in statement.split("; "):
            read.execute(one.encode())
    read.execute(
        "SET millstream.source_ddl = 'allow'; ALTER TABLE t RENAME v TO w; RESET millstream.source_ddl"
    )
    read.execute("ALTER TABLE t RENAME w TO v")
    conn.execute("DELETE FROM millstream.settings")
    read.execute("ALTER TABLE t DROP COLUMN v")


def test_a_catalog_in_disorder_stops_no_ddl(conn: Connection, read: Connection) -> None:
    conn.execute("INSERT INTO millstream.settings (name, value) VALUES ('block_source_ddl', 'on')")
    conn.execute("ALTER TABLE millstream.sources RENAME TO gone")
    read.execute("ALTER TABLE t DROP COLUMN v")
    conn.execute("ALTER TABLE millstream.gone RENAME TO sources")
    # A copy of the database: its oids mean other tables.
    conn.execute("UPDATE millstream.installation SET database_oid = 1")
    read.execute("ALTER TABLE t DROP COLUMN id")


def test_a_role_that_may_not_create_event_triggers_does_without(conn: Connection) -> None:
    conn.execute("DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN")
    conn.execute(f"GRANT CREATE ON DATABASE {conn.info.dbname} TO plain".encode())
    with psycopg.connect(conn.info.dsn, user="plain", autocommit=True) as plain:
        install.install(plain)
        assert not event_triggers.put(plain)
        assert not event_triggers.are_there(plain)
        install.uninstall(plain)
    conn.execute("DROP OWNED BY plain; DROP ROLE plain")


def test_uninstalling_removes_them(conn: Connection) -> None:
    install.install(conn)
    install.install(conn)
    assert event_triggers.are_there(conn)
    install.uninstall(conn)
    assert conn.execute("SELECT evtname FROM pg_event_trigger").fetchall() == []
