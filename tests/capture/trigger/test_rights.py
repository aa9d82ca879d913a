"""Who may write, who may read, who may set capture up; and that nobody can get in the way by a
name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from millstream.capture.buffer import prune
from millstream.capture.trigger import triggers
from millstream.catalog import sources
from millstream.catalog.installation import install
from millstream.postgres import relations
from millstream.postgres.connection import Connection, connect

if TYPE_CHECKING:
    from tests.capture.conftest import Watch


@pytest.fixture
def roles(conn: Connection) -> Iterator[dict[str, str]]:
    """An owner that may create in the database, and a writer that may write: names made for this
    test.
    """
    names = {"owner": f"owner_{conn.info.dbname}", "writer": f"writer_{conn.info.dbname}"}
    for name in names.values():
        conn.execute(f"CREATE ROLE {name} LOGIN")
    conn.execute(f"GRANT CREATE ON DATABASE {conn.info.dbname} TO {names['owner']}")
    conn.execute(
        f"CREATE SCHEMA shop AUTHORIZATION {names['owner']}; GRANT USAGE ON SCHEMA shop TO {names['writer']}"
    )
    yield names
    for name in names.values():
        conn.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def test_an_owner_who_is_no_superuser_captures_and_a_writer_needs_no_right_of_ours(
    conn: Connection, database: str, roles: dict[str, str]
) -> None:
    with connect(database.replace("tester@", f"{roles['owner']}@")) as owner:
        install.install(owner)
        owner.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, amount numeric)")
        owner.execute(f"GRANT ALL ON shop.orders TO {roles['writer']}")
        table = relations.table(
            owner, owner.execute("SELECT 'shop.orders'::regclass::oid").fetchall()[0][0]
        )
        relations.check_source(owner, table.oid)
        triggers.install(owner, table, ["id", "amount"])
        with psycopg.connect(
            database.replace("tester@", f"{roles['writer']}@"), autocommit=True
        ) as writer:
            writer.execute("INSERT INTO shop.orders VALUES (1, 1), (2, 2)")
            writer.execute("UPDATE shop.orders SET amount = 3 WHERE id = 1")
            writer.execute(
                "BEGIN ISOLATION LEVEL SERIALIZABLE; DELETE FROM shop.orders WHERE id = 2; COMMIT"
            )
            writer.execute("TRUNCATE shop.orders")
            for forbidden in (
                f"SELECT * FROM millstream_changes.changes_{table.oid}",
                f"INSERT INTO millstream_changes.changes_{table.oid} (xid, action) VALUES ('1', 'I')",
                f"SELECT millstream_changes.capture_{table.oid}()",
                "SELECT * FROM millstream.sources",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    writer.execute(forbidden)
        actions = f"SELECT string_agg(action::text, '' ORDER BY id) FROM millstream_changes.changes_{table.oid}"
        assert owner.execute(actions).fetchall() == [("IIDIDT",)]
        assert not triggers.missing(owner, table.oid)
        assert not sources.drift(owner)
        assert prune.prune(owner, [table.oid]) == 6
        assert triggers.remove(owner, table.oid)
        install.uninstall(owner)


def test_nobody_can_hang_our_function_on_a_table_of_their_own(
    conn: Connection, database: str, watch: Watch, roles: dict[str, str]
) -> None:
    conn.execute("CREATE TABLE t (id int)")
    t = watch("t")
    conn.execute(f"GRANT USAGE ON SCHEMA millstream_changes TO {roles['owner']}")
    with psycopg.connect(
        database.replace("tester@", f"{roles['owner']}@"), autocommit=True
    ) as owner:
        owner.execute("CREATE TABLE shop.mine (id int)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            owner.execute(
                "CREATE TRIGGER steal AFTER INSERT ON shop.mine REFERENCING NEW TABLE AS new_rows"
                f" FOR EACH STATEMENT EXECUTE FUNCTION millstream_changes.capture_{t.source.relid}()"
            )


def test_a_search_path_full_of_traps_changes_nothing(conn: Connection, watch: Watch) -> None:
    conn.execute("CREATE TABLE public.t (id int, v text)")
    t = watch("public.t")
    conn.execute(
        """
        CREATE SCHEMA traps;
        CREATE FUNCTION traps.pg_current_xact_id() RETURNS xid8 LANGUAGE sql AS $$ SELECT '1'::xid8 $$;
        CREATE FUNCTION traps.to_regclass(text) RETURNS regclass LANGUAGE sql AS $$ SELECT NULL::regclass $$;
        CREATE FUNCTION traps.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT 'nonsense' $$;
        CREATE FUNCTION traps.row_number() RETURNS bigint LANGUAGE sql AS $$ SELECT 1::bigint $$;
        CREATE FUNCTION traps.alike(record, record) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN true; END $$;
        CREATE OPERATOR traps.*= (LEFTARG = record, RIGHTARG = record, FUNCTION = traps.alike);
        CREATE TABLE traps.pg_attribute (attrelid oid);
        CREATE TABLE traps.new_rows (id int);
        SET search_path = traps, public, pg_catalog;
        CREATE TEMPORARY TABLE old_rows (id int);
        CREATE TEMPORARY TABLE pg_attribute (attrelid oid);
        """
    )
    conn.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    conn.execute("UPDATE t SET v = 'c' WHERE id = 1")
    conn.execute("DELETE FROM t WHERE id = 2")
    assert t.check().images == 5


@pytest.mark.parametrize(
    "setting",
    ["plpgsql.variable_conflict = use_variable", "plan_cache_mode = force_custom_plan", "enable_hashjoin = off",
     "row_security = on", "check_function_bodies = off", "standard_conforming_strings = off",
     "enable_mergejoin = off", "jit_above_cost = 0", "default_transaction_isolation = serializable"],
)  # fmt: skip
def test_a_users_settings_change_nothing(conn: Connection, watch: Watch, setting: str) -> None:
    conn.execute("CREATE TABLE t (id int, v text)")
    t = watch("t")
    conn.execute(f"SET {setting}")
    conn.execute("INSERT INTO t SELECT g, 'a' FROM generate_series(1, 100) AS g")
    conn.execute("UPDATE t SET v = 'c' WHERE id < 50")
    conn.execute("DELETE FROM t WHERE id = 2")
    assert t.check().images == 100 + 2 * 49 + 1
