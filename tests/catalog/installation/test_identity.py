"""A catalog that was restored or copied into another database: nothing is dropped or written by its
oids.

The bug: after pg_dump and pg_restore, `millstream drop` dropped a table of the user's that had the
recorded oid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import millstream
from millstream import Millstream
from millstream.bundled.server import Server
from millstream.catalog.installation import identity, install
from millstream.catalog.target import targets
from millstream.errors import OtherDatabase, TargetMoved
from millstream.postgres.connection import Connection, connect
from millstream.testing.restore import another_cluster, dump, restore

TABLES, STREAM_TABLES = 60, 24


@pytest.fixture(scope="module")
def elsewhere(server: Server) -> Iterator[Server]:
    """Another cluster of the same version, in which oids have gone another way."""
    with another_cluster(server) as running:
        yield running


def users_tables(conn: Connection) -> dict[str, list[tuple[int, ...]]]:
    """Every table of the user's, with its rows."""
    names = [
        name
        for (name,) in conn.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^t[0-9]+$' ORDER BY 1"
        )
    ]
    return {name: conn.execute(f'SELECT * FROM "{name}" ORDER BY 1').fetchall() for name in names}


def filled(conn: Connection, database: str) -> None:
    """60 tables with rows, and 24 stream tables over some of them."""
    for number in range(TABLES):
        conn.execute(
            f"CREATE TABLE t{number} (id int PRIMARY KEY, v int); INSERT INTO t{number} VALUES ({number}, 1)"
        )
    with millstream.connect(database) as ms:
        for number in range(STREAM_TABLES):
            ms.create_stream_table(f"s{number}", f"SELECT id, v FROM t{number}", initialize=False)


def verbs(ms: Millstream) -> list[Callable[[], object]]:
    drops = [
        lambda name=f"s{number}": ms.drop_stream_table(name) for number in range(STREAM_TABLES)
    ]
    cascades = [
        lambda name=f"s{number}": ms.drop_stream_table(name, cascade=True) for number in range(3)
    ]
    others = [ms.tick, ms.refresh_all, ms.status, ms.health, ms.uninstall, lambda: ms.refresh("s0")]
    others += [
        lambda: ms.uninstall(cascade=True),
        lambda: ms.create_stream_table("n", "SELECT id FROM t1"),
    ]
    others += [
        lambda: ms.alter_stream_table("s0", schedule="5m"),
        lambda: ms.explain("s0"),
        lambda: ms.verify("s0"),
    ]
    return [*drops, *cascades, *others]


@pytest.mark.parametrize("shift", [0, 7, 40])
def test_a_restored_catalog_touches_no_table_of_the_users(
    server: Server, elsewhere: Server, conn: Connection, database: str, tmp_path: Path, shift: int
) -> None:
    filled(conn, database)
    dump(server, database, tmp_path / "dump")
    dsn = restore(elsewhere, tmp_path / "dump", f"restored_{shift}", shift=shift)
    with connect(dsn) as there:
        before = users_tables(there)
        assert len(before) == TABLES
        relations = there.execute("SELECT count(*) FROM pg_class").fetchall()
        there.execute("INSERT INTO t0 VALUES (1000, 1); DELETE FROM t0 WHERE id = 1000")
        with millstream.connect(dsn) as ms:
            for verb in verbs(ms):
                with pytest.raises(OtherDatabase) as refused:
                    verb()
            assert "the server's identifier was" in refused.value.detail
            assert users_tables(there) == before
            assert there.execute("SELECT count(*) FROM pg_class").fetchall() == relations
            # The way out that the hint tells: the stream tables stay, as tables like any other.
            ms.uninstall(forget=True)
        assert users_tables(there) == before
        assert there.execute("SELECT count(*) FROM pg_trigger").fetchall() == [(0,)]
        assert there.execute(
            "SELECT count(*) FROM pg_class WHERE relname ~ '^s[0-9]+$'"
        ).fetchall() == [(STREAM_TABLES,)]
        for number in range(STREAM_TABLES):
            there.execute(f"DROP TABLE s{number}")
        with millstream.connect(dsn) as ms:
            ms.create_stream_table("s0", "SELECT id, v FROM t0", initialize=False)
            ms.uninstall()
        assert users_tables(there) == before


def test_a_database_made_from_this_one_as_template_is_another(
    server: Server, conn: Connection, database: str
) -> None:
    conn.execute("CREATE TABLE t0 (id int)")
    with millstream.connect(database) as ms:
        ms.create_stream_table("s0", "SELECT id FROM t0", initialize=False)
    name = conn.info.dbname
    conn.close()
    copy = f"{name}_copy"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {copy} TEMPLATE {name}")
        try:
            with millstream.connect(database.replace(name, copy)) as ms:
                for verb in (ms.tick, ms.status, ms.uninstall, lambda: ms.drop_stream_table("s0")):
                    with pytest.raises(OtherDatabase, match="another database") as refused:
                        verb()
                assert "the database's oid was" in refused.value.detail
                ms.uninstall(forget=True)
        finally:
            admin.execute(f"DROP DATABASE {copy} WITH (FORCE)")
    with millstream.connect(database) as ms:
        ms.drop_stream_table("s0")


def test_a_database_that_was_renamed_is_the_same(
    server: Server, conn: Connection, database: str
) -> None:
    install.install(conn)
    name = conn.info.dbname
    conn.close()
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} RENAME TO {name}_other")
        with connect(database.replace(name, f"{name}_other")) as renamed:
            install.require(renamed)
        admin.execute(f"ALTER DATABASE {name}_other RENAME TO {name}")


def test_a_role_that_may_not_ask_for_the_servers_identifier_is_no_obstacle(
    conn: Connection, database: str
) -> None:
    role = f"plain_{conn.info.dbname}"
    conn.execute(f"CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE {conn.info.dbname} TO {role}")
    conn.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    try:
        with connect(database.replace("tester@", f"{role}@")) as plain:
            install.install(plain)
            install.require(plain)
            assert plain.execute(
                "SELECT system_identifier FROM millstream.installation"
            ).fetchall() == [(None,)]
            plain.execute("UPDATE millstream.installation SET catalog_oids[1] = 1")
            with pytest.raises(OtherDatabase, match="another database") as refused:
                install.require(plain)
            assert "the catalog's own tables have other oids" in refused.value.detail
    finally:
        conn.execute("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
        conn.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


@pytest.mark.parametrize("renamed", [False, True])
def test_a_catalog_from_before_identities_gets_one_where_its_oids_have_their_names(
    conn: Connection, database: str, renamed: bool
) -> None:
    conn.execute("CREATE TABLE t0 (id int)")
    with millstream.connect(database) as ms:
        ms.create_stream_table("s0", "SELECT id FROM t0", initialize=False)
    conn.execute(
        "UPDATE millstream.installation SET database_oid = NULL, catalog_oids = NULL, system_identifier = NULL"
    )
    with pytest.raises(OtherDatabase, match="another database"):
        install.require(conn)
    if renamed:
        conn.execute("ALTER TABLE s0 RENAME TO s1; CREATE TABLE s0 (id int)")
    assert identity.record_if_intact(conn) is not renamed
    if not renamed:
        install.require(conn)


# -- by name, oid and mark -------------------------------------------------------------------


@pytest.fixture
def stream_table(conn: Connection, database: str) -> Iterator[Millstream]:
    conn.execute("CREATE TABLE t0 (id int)")
    with millstream.connect(database) as ms:
        ms.create_stream_table("s0", "SELECT id FROM t0", initialize=False)
        yield ms


@pytest.mark.parametrize("taken", [False, True])
def test_a_renamed_table_is_neither_dropped_nor_its_successor(
    conn: Connection, stream_table: Millstream, taken: bool
) -> None:
    conn.execute("ALTER TABLE s0 RENAME TO archive")
    if taken:
        conn.execute("CREATE TABLE s0 (id int)")
    acts: list[Callable[[], None]] = [
        lambda: stream_table.drop_stream_table("s0"),
        stream_table.uninstall,
    ]
    for act in acts:
        with pytest.raises(TargetMoved, match="archive") as refused:
            act()
        assert "millstream drop --forget s0" in refused.value.hint
    conn.execute("SELECT * FROM archive")
    stream_table.drop_stream_table("s0", forget=True)
    conn.execute("DELETE FROM archive")
    assert stream_table.status() == []


def test_a_table_that_was_dropped_leaves_its_successor_alone(
    conn: Connection, stream_table: Millstream
) -> None:
    conn.execute("DROP TABLE s0; CREATE TABLE s0 (id int)")
    stream_table.drop_stream_table("s0")
    conn.execute("SELECT * FROM s0")


def test_a_table_without_our_mark_is_left_alone_and_the_hint_works(
    conn: Connection, stream_table: Millstream
) -> None:
    [(index,)] = conn.execute(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 's0'::regclass"
    ).fetchall()
    conn.execute(f"COMMENT ON INDEX {index} IS NULL")
    acts: list[Callable[[], None]] = [
        lambda: stream_table.drop_stream_table("s0"),
        stream_table.uninstall,
    ]
    for act in acts:
        with pytest.raises(TargetMoved, match="not have Millstream's comment") as refused:
            act()
    assert [target.state for target in targets.inspect(conn)] == ["unmarked"]
    hint = refused.value.hint
    conn.execute(hint[hint.index("COMMENT") : hint.index(". Or keep")])
    stream_table.drop_stream_table("s0")


def test_a_replica_identity_is_set_back_by_name_and_oid(
    conn: Connection, stream_table: Millstream
) -> None:
    conn.execute(
        "ALTER TABLE t0 REPLICA IDENTITY FULL; CREATE TABLE other (id int); ALTER TABLE other REPLICA IDENTITY FULL"
    )
    conn.execute(
        "UPDATE millstream.sources SET identities = jsonb_build_object("
        "relid::text, 'DEFAULT', 'other'::regclass::oid::text, 'DEFAULT')"
    )
    stream_table.uninstall()
    query = "SELECT relname, relreplident FROM pg_class WHERE relname IN ('t0', 'other') ORDER BY 1"
    assert conn.execute(query).fetchall() == [("other", "f"), ("t0", "d")]
