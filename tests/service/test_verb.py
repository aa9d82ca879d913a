"""What every command checks before it works: the catalog is there, and nobody else's code is in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import millstream
from millstream.catalog.installation import install
from millstream.catalog.processes.mutex import Mutex
from millstream.errors import Busy, LockNotHad, NotInstalled, UntrustedCatalog
from millstream.postgres.connection import Connection
from millstream.postgres.table_locks import Patience
from millstream.service.define import drop


@pytest.fixture
def evil(conn: Connection) -> Iterator[str]:
    """A role that may create schemas in the database: its name."""
    name = f"evil_{conn.info.dbname}"
    conn.execute(f"CREATE ROLE {name} LOGIN; GRANT CREATE ON DATABASE {conn.info.dbname} TO {name}")
    yield name
    conn.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def test_a_process_that_runs_notices_what_was_planted_since(
    conn: Connection, database: str, evil: str
) -> None:
    with millstream.connect(database) as ms:
        assert ms.status() == []
        conn.execute(
            f"""CREATE SCHEMA traps AUTHORIZATION {evil};
            CREATE FUNCTION traps.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
            ALTER FUNCTION traps.fire() OWNER TO {evil};
            CREATE TRIGGER x AFTER UPDATE ON millstream.stream_tables EXECUTE FUNCTION traps.fire();"""
        )
        for verb in (ms.status, ms.tick, ms.refresh_all, ms.health, ms.uninstall):
            with pytest.raises(UntrustedCatalog, match="other roles") as refused:
                verb()
            assert "trigger x on millstream.stream_tables" in refused.value.detail
        conn.execute(refused.value.hint.partition(": ")[2])
        assert ms.tick() == []


def test_a_running_process_detects_that_the_catalog_was_removed(
    conn: Connection, database: str
) -> None:
    with millstream.connect(database) as ms:
        install.uninstall(conn)
        with pytest.raises(NotInstalled, match="is not installed"):
            ms.status()


def test_an_administrator_is_not_fooled_by_a_prepared_catalog(
    conn: Connection, database: str, evil: str
) -> None:
    """The bug: `millstream list`, run by a superuser, made the role superuser that had prepared
    schema millstream.
    """
    conn.execute(
        f"""SET ROLE {evil};
        CREATE SCHEMA millstream; CREATE SCHEMA millstream_changes; CREATE SCHEMA millstream_state;
        CREATE TABLE millstream.migrations (version int, name text);
        INSERT INTO millstream.migrations VALUES (3, 'x');
        CREATE TABLE millstream.sources (relid oid, cdc_mode text, reason text);
        CREATE TABLE millstream.slots (name text);
        CREATE FUNCTION millstream.boom() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN EXECUTE 'ALTER ROLE {evil} SUPERUSER'; RETURN NEW; END $$;
        CREATE TRIGGER b BEFORE INSERT ON millstream.migrations FOR EACH ROW EXECUTE FUNCTION millstream.boom();
        RESET ROLE"""
    )
    with pytest.raises(UntrustedCatalog, match=evil):
        millstream.connect(database)
    assert conn.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", (evil,)).fetchall() == [
        (False,)
    ]


def test_a_command_that_waits_for_a_lock_ends_and_names_who_holds_it(
    conn: Connection, database: str
) -> None:
    with millstream.connect(database) as ms:
        ms.app.conn.execute("SET lock_timeout = '200ms'")
        conn.execute("BEGIN; LOCK TABLE millstream.stream_tables IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(LockNotHad) as raised:
            ms.status()
        assert (
            f"process {conn.info.backend_pid} (millstream, idle in transaction, since 20"
            in raised.value.detail
        )
        conn.execute("ROLLBACK")
        assert ms.status() == []


def test_whatever_the_role_has_set_a_command_waits_half_a_minute_for_a_lock(
    conn: Connection, database: str
) -> None:
    conn.execute("ALTER ROLE tester SET lock_timeout = 0")
    try:
        with millstream.connect(database) as ms:
            assert ms.app.conn.execute("SHOW lock_timeout").fetchall() == [("30s",)]
    finally:
        conn.execute("ALTER ROLE tester RESET lock_timeout")


def test_a_drop_waits_for_whoever_works_on_the_stream_table_and_then_says_who(
    conn: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn.execute("CREATE TABLE t (a int)")
    monkeypatch.setattr(drop, "WAITING", Patience(seconds=0.3))
    with millstream.connect(database) as ms, Mutex(database) as other:
        ms.create_stream_table("m", "SELECT a FROM t", initialize=False)
        with other.stream_table(ms.app.named("m").id, "m"), pytest.raises(Busy) as busy:
            ms.drop_stream_table("m")
        assert "(millstream locks, since 20" in busy.value.detail
        ms.drop_stream_table("m")
        assert conn.execute("SELECT count(*) FROM millstream.locks").fetchall() == [(0,)]
