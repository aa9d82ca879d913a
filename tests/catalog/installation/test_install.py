"""Installing: twice, at once, by whom; uninstalling: nothing is left."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millstream.bundled.server import Server, embedded
from millstream.capture.trigger import triggers
from millstream.catalog import blocks, sources, stream_tables
from millstream.catalog.installation import install
from millstream.catalog.target import targets
from millstream.errors import LockNotHad, NameTaken, NoRights, NotInstalled, StillUsed
from millstream.observe.failpoint import UNINSTALL_FAILPOINTS, VARIABLE
from millstream.postgres import relations
from millstream.postgres.connection import Connection, connect
from millstream.postgres.table_locks import Patience
from millstream.testing import forks

GOLDEN = Path(__file__).parent / "golden" / "catalog.txt"
UNINSTALL = Path(__file__).with_name("uninstall_child.py")

# What the catalog is, in words that every supported version of PostgreSQL prints alike.
DESCRIPTION = """
    SELECT line FROM (
        SELECT nspname::text AS at, 0 AS kind,
            'schema ' || nspname || coalesce(' -- ' || obj_description(oid, 'pg_namespace'), '')
        FROM pg_namespace WHERE nspname LIKE 'millstream%'
        UNION ALL
        SELECT c.oid::regclass::text, 1,
            'table ' || c.oid::regclass || coalesce(' -- ' || obj_description(c.oid, 'pg_class'), '')
        FROM pg_class AS c WHERE c.relkind = 'r' AND c.relnamespace::regnamespace::text LIKE 'millstream%'
        UNION ALL
        SELECT c.oid::regclass::text, 100 + a.attnum, '    ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
            || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
            || CASE WHEN a.attidentity <> '' THEN ' IDENTITY' ELSE '' END
            || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '')
        FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relkind = 'r' AND c.relnamespace::regnamespace::text LIKE 'millstream%'
        UNION ALL
        SELECT conrelid::regclass::text, 2000, '    ' || conname || ' ' || pg_get_constraintdef(oid)
        FROM pg_constraint WHERE contype IN ('p', 'u', 'f', 'c') AND connamespace::regnamespace::text LIKE 'millstream%'
        UNION ALL
        SELECT i.indrelid::regclass::text, 3000, '    ' || pg_get_indexdef(i.indexrelid)
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE c.relnamespace::regnamespace::text LIKE 'millstream%'
        UNION ALL
        SELECT p.oid::regproc::text, 4000, 'function ' || p.oid::regprocedure || ' ' || p.provolatile::text || ' '
            || md5(p.prosrc) || coalesce(' -- ' || obj_description(p.oid, 'pg_proc'), '')
        FROM pg_proc AS p WHERE p.pronamespace::regnamespace::text LIKE 'millstream%'
    ) AS described (at, kind, line)
    ORDER BY at COLLATE "C", kind, line COLLATE "C"
"""

# Everything that installing, capturing and creating could leave behind.
EVERYTHING = """
    SELECT 'class', oid::text, relname::text FROM pg_class WHERE oid >= 16384
    UNION ALL SELECT 'proc', oid::text, proname::text FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT 'trigger', oid::text, tgname::text FROM pg_trigger
    UNION ALL SELECT 'namespace', oid::text, nspname::text FROM pg_namespace
    UNION ALL SELECT 'type', oid::text, typname::text FROM pg_type WHERE oid >= 16384
    UNION ALL SELECT 'constraint', oid::text, conname::text FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT 'default', oid::text, adrelid::text FROM pg_attrdef
    UNION ALL SELECT 'acl', oid::text, defaclnamespace::text FROM pg_default_acl
    UNION ALL SELECT 'event', oid::text, evtname::text FROM pg_event_trigger
    UNION ALL SELECT 'publication', oid::text, pubname::text FROM pg_publication
    UNION ALL SELECT 'operator', oid::text, oprname::text FROM pg_operator WHERE oid >= 16384
    ORDER BY 1, 2, 3
"""

SHOP = """
    CREATE SCHEMA "My Shop";
    CREATE TABLE "My Shop"."Order" (id int PRIMARY KEY, amount numeric);
    CREATE TABLE measures (at date, v int) PARTITION BY RANGE (at);
    CREATE TABLE measures_1 PARTITION OF measures FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
    CREATE TABLE parent (a int);
    CREATE TABLE child () INHERITS (parent);
"""


def everything(conn: Connection) -> list[tuple[str, ...]]:
    return conn.execute(EVERYTHING).fetchall()


def create_stream_table(conn: Connection, name: str, source: str, columns: list[str]) -> int:
    """The least that creating a stream table does."""
    relid = conn.execute("SELECT %s::regclass::oid", (source,)).fetchall()[0][0]
    triggers.install(conn, relations.table(conn, relid), columns)
    table = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name="public", name=name, query="", canonical_query="", schedule="1s"
        ),
    )
    conn.execute(f'CREATE TABLE public."{name}" AS SELECT * FROM {source}')
    conn.execute(f'CREATE UNIQUE INDEX ON public."{name}" ((true))')
    conn.execute(f"CREATE TABLE millstream_state.state_{table.id} (k int PRIMARY KEY)")
    stream_tables.attach(
        conn, table.id, conn.execute(f"SELECT 'public.\"{name}\"'::regclass::oid").fetchall()[0][0]
    )
    targets.mark(conn, table.id)
    sources.add_dependency(conn, table.id, relid, columns)
    blocks.add(conn, table.id, [blocks.RecordedBlock(0, "main", "none", None, "scan")])
    return table.id


@pytest.fixture
def role(conn: Connection) -> Iterator[str]:
    """A role without any right: its name."""
    name = f"plain_{conn.info.dbname}"
    conn.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    conn.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


# -- installing ------------------------------------------------------------------------------


def test_the_catalog_is_what_its_migrations_make_it(conn: Connection) -> None:
    install.install(conn)
    described = "\n".join(line for (line,) in conn.execute(DESCRIPTION)) + "\n"
    if os.environ.get("MILLSTREAM_UPDATE_GOLDEN"):
        GOLDEN.write_text(described, encoding="utf-8")
    assert described == GOLDEN.read_text(encoding="utf-8"), (
        "write a migration, then set MILLSTREAM_UPDATE_GOLDEN=1"
    )


def test_the_list_of_tables_is_complete(conn: Connection) -> None:
    install.install(conn)
    query = "SELECT relname FROM pg_class WHERE relnamespace = 'millstream'::regnamespace AND relkind = 'r'"
    assert {name for (name,) in conn.execute(query)} == set(install.TABLES)


def test_installing_twice_is_installing_once(conn: Connection) -> None:
    assert install.install(conn) == install.known()
    before = everything(conn)
    id = conn.execute("SELECT id FROM millstream.installation").fetchall()
    assert install.install(conn) == install.known()
    assert everything(conn) == before
    assert conn.execute("SELECT id FROM millstream.installation").fetchall() == id
    migrations = [(migration.version, migration.name) for migration in install.migrations()]
    assert (
        conn.execute("SELECT version, name FROM millstream.migrations ORDER BY 1").fetchall()
        == migrations
    )


def test_installing_at_once_is_installing_once(another: Callable[[], Connection]) -> None:
    versions: list[int] = []
    sessions = [another() for _ in range(8)]
    tasks = [
        threading.Thread(target=lambda s=session: versions.append(install.install(s)))
        for session in sessions
    ]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    assert versions == [install.known()] * 8
    assert sessions[0].execute("SELECT count(*) FROM millstream.installation").fetchall() == [(1,)]


def test_another_install_may_commit_before_any_statement_of_an_install(
    another: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schemas that another install created between two statements of ours were taken for those of a
    stranger.
    """
    ours, other = another(), another()
    for number in count(1):
        statements = _install_before(monkeypatch, number, ours, other)
        install.uninstall(other)
        if statements[number - 1] == install.migrations()[0].text:
            break
    # Before it: the isolation, the timeouts, and the looks at what is there.
    assert number > 5


def _install_before(
    monkeypatch: pytest.MonkeyPatch, number: int, ours: Connection, other: Connection
) -> list[object]:
    """Install by one session, and by the other before a statement of the first; return the
    statements of the first.
    """
    statements, run = list[object](), ours.execute

    def execute(
        query: Any, *arguments: Any, **options: Any
    ) -> Any:  # psycopg has overloads for each kind of query
        statements.append(query)
        if len(statements) == number:
            install.install(other)
        return run(query, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ours, "execute", execute)
        assert install.install(ours) == install.known()
    return statements


def test_there_is_one_installation(conn: Connection) -> None:
    install.install(conn)
    with pytest.raises(Exception, match="installation_has_one_row"):
        conn.execute("INSERT INTO millstream.installation DEFAULT VALUES")


def test_version_and_require_tell_what_is_there(conn: Connection) -> None:
    assert install.version(conn) is None
    with pytest.raises(NotInstalled, match="is not installed") as raised:
        install.require(conn)
    assert raised.value.database == conn.info.dbname
    install.install(conn)
    assert install.version(conn) == install.known()
    install.require(conn)


def test_a_newer_catalog_is_left_alone(conn: Connection) -> None:
    install.install(conn)
    conn.execute("INSERT INTO millstream.migrations (version, name) VALUES (999, 'later')")
    for act in (install.require, install.install):
        with pytest.raises(NotInstalled, match="version 999"):
            act(conn)


def test_an_older_catalog_is_refused_until_it_is_upgraded(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.install(conn)
    later = install.Migration(
        install.known() + 1, "later", "ALTER TABLE millstream.settings ADD COLUMN note text"
    )
    extended = (*install.migrations(), later)
    monkeypatch.setattr(install, "migrations", lambda: extended)
    with pytest.raises(NotInstalled, match="needs"):
        install.require(conn)
    assert install.install(conn) == later.version
    install.require(conn)
    conn.execute("SELECT note FROM millstream.settings")


def test_a_migration_that_fails_leaves_nothing(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(conn)
    broken = (*install.migrations(), install.Migration(install.known() + 1, "broken", "SELECT 1/0"))
    monkeypatch.setattr(install, "migrations", lambda: broken)
    with pytest.raises(Exception, match="division by zero"):
        install.install(conn)
    assert everything(conn) == before


@pytest.mark.parametrize("schema", install.SCHEMAS)
def test_a_schema_of_the_same_name_of_another_role_is_not_touched(
    conn: Connection, schema: str
) -> None:
    conn.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.precious (a int)")
    before = everything(conn)
    with pytest.raises(NameTaken, match=schema):
        install.install(conn)
    assert install.version(conn) is None
    install.uninstall(conn)
    assert everything(conn) == before


# -- rights ----------------------------------------------------------------------------------


def test_a_role_with_create_on_the_database_installs_and_uninstalls(
    conn: Connection, database: str, role: str
) -> None:
    conn.execute(f"GRANT CREATE ON DATABASE {conn.info.dbname} TO {role}")
    before = everything(conn)
    with connect(database.replace("tester@", f"{role}@")) as plain:
        assert install.install(plain) == install.known()
        install.require(plain)
        install.uninstall(plain)
    assert everything(conn) == before


def test_a_role_without_the_privilege_gets_the_grant_as_hint(
    conn: Connection, database: str, role: str
) -> None:
    with connect(database.replace("tester@", f"{role}@")) as plain:
        assert install.version(plain) is None
        with pytest.raises(NoRights) as raised:
            install.install(plain)
    assert f'GRANT CREATE ON DATABASE "{conn.info.dbname}" TO "{role}";' in raised.value.hint
    conn.execute(raised.value.hint.removeprefix("As an administrator: "))
    with connect(database.replace("tester@", f"{role}@")) as plain:
        install.install(plain)


def test_another_role_gets_the_role_to_connect_as_in_the_hint(
    conn: Connection, database: str, role: str
) -> None:
    install.install(conn)
    with connect(database.replace("tester@", f"{role}@")) as plain:
        for act in (install.version, install.require, install.install, install.uninstall):
            with pytest.raises(NoRights, match="may not use the catalog") as raised:
                act(plain)
    assert raised.value.hint == 'Connect as role "tester".'


# -- uninstalling ----------------------------------------------------------------------------


def test_uninstalling_leaves_nothing(conn: Connection) -> None:
    conn.execute(SHOP)
    before = everything(conn)
    install.install(conn)
    create_stream_table(conn, "of orders", '"My Shop"."Order"', ["id", "amount"])
    create_stream_table(conn, "of measures", "measures", ["v"])
    create_stream_table(conn, "of parents", "parent", ["a"])
    create_stream_table(conn, "of children", "child", ["a"])
    create_stream_table(conn, "of streams", 'public."of orders"', ["id"])
    conn.execute('INSERT INTO "My Shop"."Order" VALUES (1, 1)')
    assert everything(conn) != before
    install.uninstall(conn)
    assert everything(conn) == before
    conn.execute('DELETE FROM "My Shop"."Order"')


def test_uninstalling_twice_or_where_nothing_is_does_nothing(conn: Connection) -> None:
    before = everything(conn)
    install.uninstall(conn)
    install.install(conn)
    install.uninstall(conn)
    install.uninstall(conn)
    assert everything(conn) == before
    install.install(conn)
    install.require(conn)


def test_uninstalling_finds_triggers_the_catalog_forgot(conn: Connection) -> None:
    conn.execute(SHOP)
    before = everything(conn)
    install.install(conn)
    create_stream_table(conn, "s", "measures", ["v"])
    conn.execute(
        "ALTER TABLE measures DETACH PARTITION measures_1; ALTER TABLE measures_1 RENAME TO lost"
    )
    conn.execute("DELETE FROM millstream.dependencies; DELETE FROM millstream.sources")
    install.uninstall(conn)
    assert conn.execute("SELECT count(*) FROM pg_trigger").fetchall() == [(0,)]
    assert {row[2] for row in everything(conn)} - {row[2] for row in before} == {"lost", "_lost"}


def test_uninstalling_copes_with_a_stream_table_that_was_dropped(conn: Connection) -> None:
    conn.execute(SHOP)
    before = everything(conn)
    install.install(conn)
    create_stream_table(conn, "dropped", "parent", ["a"])
    conn.execute("DROP TABLE dropped")
    install.uninstall(conn)
    assert everything(conn) == before


def test_what_users_built_on_a_stream_table_is_not_dropped_unasked(conn: Connection) -> None:
    conn.execute(SHOP)
    install.install(conn)
    create_stream_table(conn, "s", "parent", ["a"])
    conn.execute("CREATE VIEW mine AS SELECT * FROM s")
    before = everything(conn)
    with pytest.raises(StillUsed) as raised:
        install.uninstall(conn)
    assert "view mine" in raised.value.detail.replace("public.", "")
    assert everything(conn) == before
    install.uninstall(conn, cascade=True)
    assert install.version(conn) is None


def test_a_users_table_in_our_schema_prevents_uninstalling(conn: Connection) -> None:
    install.install(conn)
    conn.execute("CREATE TABLE millstream.precious (a int)")
    with pytest.raises(StillUsed) as raised:
        install.uninstall(conn)
    assert '"millstream"."precious"' in raised.value.detail
    conn.execute("ALTER TABLE millstream.precious SET SCHEMA public")
    install.uninstall(conn)
    conn.execute("SELECT * FROM precious")


def test_uninstalling_does_not_wait_for_a_long_writer_for_ever(
    conn: Connection, another: Callable[[], Connection]
) -> None:
    conn.execute(SHOP)
    install.install(conn)
    create_stream_table(conn, "s", "parent", ["a"])
    writer = another()
    writer.execute("BEGIN")
    writer.execute("INSERT INTO parent VALUES (1)")
    with pytest.raises(LockNotHad):
        install.uninstall(conn, patience=Patience(lock_timeout=0.05, seconds=0.3))
    assert install.version(conn) == install.known()
    writer.execute("COMMIT")
    install.uninstall(conn)


# -- uninstalling more than the server's lock table holds --------------------------------------

# The smallest lock table that PostgreSQL has.
SMALL = {
    "max_locks_per_transaction": "10",
    "max_connections": "25",
    "max_prepared_transactions": "0",
    "fsync": "off",
}
MANY = 60


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    with embedded(
        bindir=os.environ.get("MILLSTREAM_TEST_BINDIR") or None, settings=SMALL
    ) as server:
        yield server


def fill(conn: Connection, count: int) -> None:
    """Install, with so many stream tables over tables of their own."""
    install.install(conn)
    for number in range(count):
        conn.execute(f"CREATE TABLE IF NOT EXISTS source_{number} (id int PRIMARY KEY, t text)")
        id = create_stream_table(conn, f"st_{number}", f"source_{number}", ["id", "t"])
        conn.execute(
            f"CREATE VIEW millstream_state.block_{id}_0 AS SELECT * FROM millstream_state.state_{id}"
        )


def test_uninstalling_takes_no_more_locks_than_are_estimated(conn: Connection) -> None:
    conn.execute(SHOP)
    fill(conn, 3)
    create_stream_table(conn, "of measures", "measures", ["v"])
    estimate = install.removal_locks(conn)
    with conn.transaction(force_rollback=True):
        install._remove(conn, cascade=False, forget=False)
        query = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()"
        assert estimate / 3 < conn.execute(query).fetchall()[0][0] <= estimate


def test_uninstalling_more_than_the_lock_table_holds_goes_in_parts(small: Server) -> None:
    """All in one transaction, "out of shared memory" ended it, for good, from some 500 stream
    tables on.
    """
    with connect(small.dsn) as conn:
        for number in range(MANY):
            conn.execute(f"CREATE TABLE source_{number} (id int PRIMARY KEY, t text)")
        before = everything(conn)
        fill(conn, MANY)
        with pytest.raises(psycopg.errors.OutOfMemory), conn.transaction():
            install._remove(conn, cascade=False, forget=False)
        # What one of them is used by is told before another is gone.
        conn.execute("CREATE VIEW mine AS SELECT * FROM st_0")
        filled = everything(conn)
        with pytest.raises(StillUsed):
            install.uninstall(conn)
        assert everything(conn) == filled
        conn.execute("DROP VIEW mine")
        for point in UNINSTALL_FAILPOINTS:
            # Not at the point of another: the stream tables go first.
            environment = {**os.environ, VARIABLE: point}
            ended = forks.run(UNINSTALL, small.dsn, environment=environment, timeout=120)
            assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]
            assert install.version(conn) == install.known()
            assert len(stream_tables.every(conn)) == (
                MANY - 1 if point == UNINSTALL_FAILPOINTS[0] else 0
            )
        install.uninstall(conn)
        assert everything(conn) == before


def test_forgetting_more_than_the_lock_table_holds_leaves_their_tables(small: Server) -> None:
    with connect(small.dsn) as conn:
        fill(conn, MANY)
        install.uninstall(conn, forget=True)
        assert install.version(conn) is None
        assert conn.execute("SELECT count(*) FROM pg_trigger").fetchall() == [(0,)]
        assert conn.execute(
            "SELECT count(*) FROM pg_class WHERE relname ~ '^st_\\d+$'"
        ).fetchall() == [(MANY,)]
        for number in range(MANY):
            conn.execute(f"DROP TABLE st_{number}, source_{number}")


def test_recorded_plans_are_brought_to_the_words_that_plans_print(conn: Connection) -> None:
    """A plan that differs in its words alone would be taken for another, and its stream table
    filled again.
    """
    (migration,) = [
        migration for migration in install.migrations() if migration.name == "plan_words"
    ]
    conn.execute("CREATE TEMPORARY TABLE blocks (plan text)")
    before = "Block a\n  i0 WHERE (x = 'kept as') MOVING (y)\n  v0 = max(r.g0) [gathered]\n  kept as bag\n  row_id"
    conn.execute("INSERT INTO blocks VALUES (%s), ('Block b')", (before,))
    conn.execute(migration.text.replace("millstream.blocks", "pg_temp.blocks").encode())
    plans = [plan for (plan,) in conn.execute("SELECT plan FROM blocks ORDER BY 1 DESC").fetchall()]
    assert plans == [
        "Block b",
        "Block a\n  i0 WHERE (x = 'kept as') TEMPORAL FILTER (y)\n  v0 = max(r.g0) [holistic]\n"
        "  materialized as bag\n  row_id",
    ]
