"""What others do to sources and stream tables: answered with the right rows or with an error, never
with wrong rows.
"""

from __future__ import annotations

import psycopg
import pytest

import millstream
from millstream.client import Millstream
from millstream.errors import MillstreamError, SourceChanged
from millstream.settings import Settings
from millstream.testing import oracle

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(ms: Millstream, writer: psycopg.Connection) -> psycopg.Connection:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, g int, v numeric(8,2))")
    writer.execute("CREATE TABLE other (id int PRIMARY KEY)")
    writer.execute(
        "INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 9) AS i; INSERT INTO other VALUES (1)"
    )
    return writer


def equal(ms: Millstream, name: str, query: str) -> None:
    oracle.check(ms.app.conn, query, name)


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE t ALTER COLUMN v TYPE text",
        "ALTER TABLE t DROP COLUMN v",
        "DROP TABLE t",
    ],
)
def test_a_source_that_changed_its_shape_is_an_error_for_its_readers_only(
    ms: Millstream, writer: psycopg.Connection, ddl: str
) -> None:
    ms.create_stream_table("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")
    ms.create_stream_table("others", "SELECT id FROM other", schedule="continuous")
    writer.execute(ddl.encode())
    writer.execute("INSERT INTO other VALUES (2)")
    with pytest.raises(SourceChanged):
        ms.refresh("sums")
    assert [report.name for report in ms.tick()] == ["others"]
    assert ms.app.named("sums").status == "ERROR"
    equal(ms, "others", "SELECT id FROM other")


def test_a_column_nobody_uses_may_come_and_go(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("ALTER TABLE t ADD COLUMN unused text")
    ms.create_stream_table("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")
    writer.execute("ALTER TABLE t DROP COLUMN unused; ALTER TABLE t ADD COLUMN later int DEFAULT 7")
    writer.execute("UPDATE t SET v = v + 1 WHERE id = 3")
    assert ms.refresh("sums").action == "DIFFERENTIAL"
    equal(ms, "sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")


@pytest.mark.parametrize(
    "query", ["SELECT g, count(*) AS n FROM t GROUP BY g", "SELECT g FROM t", "SELECT id, g FROM t"]
)
def test_a_full_refresh_repairs_what_was_written_by_hand(
    ms: Millstream, writer: psycopg.Connection, query: str
) -> None:
    ms.app.settings = Settings(allow_direct_writes=True)
    ms.create_stream_table("st", query)
    columns = [
        name
        for (name,) in writer.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'st'::regclass AND attnum > 0"
        )
    ]
    values = ["'\\x01'" if name == "__ms_row_id" else "99" for name in columns]
    writer.execute(f"INSERT INTO st VALUES ({', '.join(values)})".encode())
    writer.execute("DELETE FROM st WHERE g = 1")
    assert not ms.verify("st").ok
    report = ms.refresh("st", full=True)
    assert report.rows_deleted == 1
    assert report.rows_inserted > 0
    assert ms.verify("st").ok


def test_a_trigger_on_a_stream_table_may_write_to_a_source(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE FUNCTION copy_row() RETURNS trigger LANGUAGE plpgsql AS "
                   "$$ BEGIN INSERT INTO other VALUES (NEW.id + 100); RETURN NULL; END $$")  # fmt: skip
    ms.create_stream_table("a_rows", "SELECT id, g FROM t", schedule="continuous")
    ms.create_stream_table("b_count", "SELECT count(*) AS n FROM other", schedule="continuous")
    writer.execute(
        "CREATE TRIGGER copy AFTER INSERT ON a_rows FOR EACH ROW EXECUTE FUNCTION copy_row()"
    )
    writer.execute("INSERT INTO t VALUES (10, 1, 1), (11, 2, 2)")
    for _ in range(3):
        ms.tick()
    equal(ms, "b_count", "SELECT count(*) AS n FROM other")
    assert writer.execute("SELECT n FROM b_count").fetchone() == (3,)


def test_triggers_of_the_user_fire_once_per_real_change(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    ms.create_stream_table("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")
    writer.execute("CREATE TABLE seen (op text, old_s numeric, new_s numeric)")
    writer.execute("CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
                   "$$ BEGIN INSERT INTO seen VALUES (TG_OP, OLD.s, NEW.s); RETURN NULL; END $$")  # fmt: skip
    writer.execute(
        "CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON sums FOR EACH ROW EXECUTE FUNCTION note()"
    )
    writer.execute(
        "UPDATE t SET v = v + 1 WHERE id = 3; INSERT INTO t VALUES (20, 7, 5); DELETE FROM t WHERE g = 1"
    )
    writer.execute("UPDATE t SET v = v + 1 WHERE id = 2; UPDATE t SET v = v - 1 WHERE id = 2")
    ms.refresh("sums")
    seen = writer.execute("SELECT op, old_s, new_s FROM seen ORDER BY op").fetchall()
    assert [(op, str(old), str(new)) for op, old, new in seen] == [
        ("DELETE", "12.00", "None"), ("INSERT", "None", "5.00"), ("UPDATE", "18.00", "19.00"),
    ]  # fmt: skip


def test_a_create_that_was_cut_short_before_its_columns_were_captured_is_finished_by_the_next_refresh(
    ms: Millstream, writer: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ms.create_stream_table("first", "SELECT id, g FROM t")
    with monkeypatch.context() as patch:
        patch.setattr("millstream.capture.trigger.triggers.install", lambda *_, **__: None)
        ms.create_stream_table("second", "SELECT id, v FROM t", initialize=False)
    assert ms.refresh("second").action == "FULL"
    writer.execute("UPDATE t SET v = 0 WHERE id = 1")
    assert ms.refresh("second").action == "DIFFERENTIAL"
    equal(ms, "second", "SELECT id, v FROM t")


def test_an_error_of_one_table_is_raised_and_recorded(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    ms.create_stream_table("sums", "SELECT g, sum(v) AS s FROM t GROUP BY g")
    writer.execute("ALTER TABLE t DROP COLUMN v")
    with pytest.raises(MillstreamError):
        ms.refresh("sums")
    told = next(one for one in ms.status() if one.name == "sums")
    assert told.consecutive_errors == 1
    assert "MS301" in (told.last_error or "")
    assert ms.history("sums")[0].status == "FAILED"


# -- the guard -----------------------------------------------------------------------------------


def test_writes_to_a_stream_table_are_refused_and_refreshes_go_on(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """`INSERT INTO st` stayed for ever: refresh and health were fine, only verify told."""
    query = "SELECT g, count(*) AS n FROM t GROUP BY g"
    ms.create_stream_table("st", query)
    ms.create_stream_table("reader", "SELECT g FROM st WHERE n > 1")
    for statement in (
        "INSERT INTO st VALUES (99, 1)",
        "UPDATE st SET n = 0",
        "DELETE FROM st",
        "TRUNCATE st",
    ):
        with pytest.raises(psycopg.errors.WrongObjectType, match="it is a stream table"):
            writer.execute(statement.encode())
    writer.execute(
        "INSERT INTO t VALUES (10, 7, 1), (11, 7, 1); DELETE FROM t WHERE g = 1; UPDATE t SET g = 2 WHERE g = 0"
    )
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
    equal(ms, "st", query)
    equal(ms, "reader", "SELECT g FROM t GROUP BY g HAVING count(*) > 1")


@pytest.mark.parametrize("again", [False, True], ids=["same process", "new process"])
def test_what_was_written_while_the_guard_was_off_is_repaired(
    ms: Millstream, writer: psycopg.Connection, database: str, again: bool
) -> None:
    query = "SELECT g, count(*) AS n FROM t GROUP BY g"
    ms.create_stream_table("st", query, schedule="continuous")
    writer.execute(
        "ALTER TABLE st DISABLE TRIGGER millstream_guard; INSERT INTO st VALUES (99, 1); DELETE FROM st WHERE g = 0"
    )
    if again:
        for table in ms.status():
            ms.app.forget(ms.app.named(table.name).id)
    check = next(one for one in ms.health() if one.name == "stream table public.st")
    assert (check.ok, "guard" in check.found) == (False, True)
    report = ms.tick()[0]
    assert (report.action, report.reason) == ("REINITIALIZE", "UNGUARDED")
    assert (report.rows_inserted, report.rows_deleted) == (1, 1)
    equal(ms, "st", query)
    with pytest.raises(psycopg.errors.WrongObjectType):
        writer.execute("DELETE FROM st")
    writer.execute("UPDATE t SET g = 1 WHERE g = 2")
    assert ms.tick()[0].action == "DIFFERENTIAL"
    equal(ms, "st", query)


def test_a_stream_table_without_a_guard_from_an_older_version_gets_one_without_recomputation(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    ms.create_stream_table("st", "SELECT id, g FROM t")
    writer.execute(
        "DROP TRIGGER millstream_guard ON st; UPDATE millstream.stream_tables SET is_guarded = false"
    )
    assert ms.refresh("st").action == "NO_DATA"
    with pytest.raises(psycopg.errors.WrongObjectType):
        writer.execute("DELETE FROM st")


def test_direct_writes_may_be_allowed_and_forbidden_again(
    ms: Millstream, writer: psycopg.Connection, database: str
) -> None:
    with millstream.connect(database, settings=Settings(allow_direct_writes=True)) as lenient:
        lenient.create_stream_table("st", "SELECT id, g FROM t")
        writer.execute("DELETE FROM st WHERE id = 1")
    ms.refresh("st")
    with pytest.raises(psycopg.errors.WrongObjectType):
        writer.execute("DELETE FROM st")
    assert not ms.verify("st").ok
    assert ms.refresh("st", full=True).rows_inserted == 1
    equal(ms, "st", "SELECT id, g FROM t")
