"""The doctor says what it found, and what to do, and looks on when one thing is wrong."""

from __future__ import annotations

from importlib import metadata

import pytest

from millstream.capture.trigger import triggers
from millstream.catalog.installation import install
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.service.monitoring import doctor as module
from millstream.service.monitoring.doctor import Check, doctor


def checked(dsn: str | None) -> dict[str, Check]:
    checks = doctor(dsn)
    found = {check.name: check for check in checks}
    assert len(found) == len(checks)
    return found


def test_without_a_database_the_machine_is_looked_at() -> None:
    assert [check.name for check in doctor()] == ["python", "java", "pyspark", "embedded server"]


def test_missing_parts_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonesuch")

    def nothing(distribution: str) -> str:
        raise metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(metadata, "version", nothing)
    monkeypatch.setattr(module, "OLDEST_PYTHON", (9, 9))
    found = checked(None)
    assert (found["java"].ok, found["pyspark"].ok, found["python"].ok) == (False, False, False)
    assert found["embedded server"].ok is None, "only the demo needs it"
    assert "openjdk" in found["java"].hint
    assert "pip install" in found["pyspark"].hint
    assert "9.9" in found["python"].hint


def test_a_database_without_the_catalog_is_fine(database: str) -> None:
    found = checked(database)
    assert [found[name].ok for name in ("server", "role", "rights")] == [True, True, True]
    assert (found["catalog"].ok, found["capture"].ok) == (None, None)
    assert "millstream init" in found["catalog"].hint


def test_the_version_of_the_server_is_checked(conn: Connection, database: str) -> None:
    assert str(conn.info.server_version // 10000) in checked(database)["server"].found


def test_a_server_that_does_not_answer_is_one_wrong_check() -> None:
    found = checked("postgresql://nobody@127.0.0.1:1/none?connect_timeout=2")
    assert found["server"].ok is False
    assert "role" not in found


def test_gaps_in_capture_are_named(conn: Connection, database: str) -> None:
    install.install(conn)
    conn.execute("CREATE TABLE t (id int)")
    oid = conn.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    triggers.install(conn, relations.table(conn, oid), ["id"])
    assert checked(database)["capture"] == Check("capture", True, "sources: 1, all fully captured")
    conn.execute("ALTER TABLE t DISABLE TRIGGER ALL; ALTER TABLE t RENAME id TO other")
    found = checked(database)["capture"]
    assert found.ok is False
    assert "is disabled" in found.found
    assert "renamed" in found.found
    install.uninstall(conn)
    assert checked(database)["catalog"].found == "not installed"


def test_a_catalog_of_another_version_is_wrong(conn: Connection, database: str) -> None:
    install.install(conn)
    assert checked(database)["catalog"] == Check("catalog", True, f"version {install.known()}")
    conn.execute("INSERT INTO millstream.migrations (version, name) VALUES (999, 'later')")
    found = checked(database)["catalog"]
    assert found.ok is False
    assert "999" in found.found
    assert "Upgrade Millstream" in found.hint


def test_prepared_transactions_are_named(conn: Connection, database: str) -> None:
    conn.execute("CREATE TABLE t (id int)")
    conn.execute("BEGIN")
    conn.execute("INSERT INTO t VALUES (1)")
    conn.execute("PREPARE TRANSACTION 'left behind'")
    assert checked(database)["prepared transactions"].found.startswith("left behind (")
    conn.execute("ROLLBACK PREPARED 'left behind'")
    assert checked(database)["prepared transactions"].found == "none"


def test_rights_that_lack_are_named(conn: Connection, database: str) -> None:
    role = f"stranger_{conn.info.dbname}"
    conn.execute(
        f"CREATE ROLE {role} LOGIN; REVOKE TEMPORARY ON DATABASE {conn.info.dbname} FROM PUBLIC"
    )
    try:
        found = checked(database.replace("tester@", f"{role}@"))["rights"]
        assert found.ok is False
        assert f'GRANT CREATE, TEMPORARY ON DATABASE "{conn.info.dbname}" TO "{role}"' in found.hint
    finally:
        conn.execute(f"DROP ROLE {role}")


def test_a_role_named_like_our_schema_is_warned(conn: Connection, database: str) -> None:
    conn.execute(
        "DO $$ BEGIN CREATE ROLE millstream SUPERUSER LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    found = checked(database.replace("tester@", "millstream@"))["role"]
    assert found.ok is None
    assert "search_path" in found.hint


def test_a_setting_that_event_triggers_cannot_read_is_reported(
    conn: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.install(conn)
    assert checked(database)["event triggers"].ok is True
    monkeypatch.setenv("MILLSTREAM_BLOCK_SOURCE_DDL", "true")
    found = checked(database)["event triggers"]
    assert (found.ok, "no effect" in found.found) == (None, True)
    conn.execute(
        "INSERT INTO millstream.settings (name, value) VALUES ('block_source_ddl', 'true')"
    )
    assert checked(database)["event triggers"].ok is True
