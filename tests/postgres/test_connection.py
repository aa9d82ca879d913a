"""What a session of ours is like, whatever role and database say."""

from __future__ import annotations

import subprocess
import sys
import time
import traceback

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream, Settings
from millstream.bundled.server import free_port
from millstream.capture.transition.context import TransitionMemory
from millstream.catalog import sources
from millstream.errors import (
    BadSetting,
    MillstreamError,
    ServerDown,
    WrongVersion,
)
from millstream.postgres import connection
from millstream.postgres.connection import Connection, connect, pinned, session, watchful
from millstream.refresh.reads import access_paths
from millstream.testing import oracle
from millstream.testing.waiting import wait_until


@pytest.mark.parametrize(("given", "ours"), [("4", "1.1"), ("1.1", "1.1"), ("1", "1")])
def test_our_sessions_read_pages_in_any_order_and_compile_no_statement(
    database: str, given: str, ours: str
) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"ALTER DATABASE {conn.info.dbname} SET random_page_cost = {given}".encode())
        conn.execute(f"ALTER DATABASE {conn.info.dbname} SET jit = on".encode())
    with session(database) as conn:
        assert conn.execute("SHOW random_page_cost").fetchone() == (ours,)
        # Compiling takes longer than what we ask of the server's catalog.
        assert conn.execute("SHOW jit").fetchone() == ("off",)


# What a role or a database may set that would end our sessions, or change what they read and print.
HOSTILE = {
    "statement_timeout": "1ms",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
    "idle_session_timeout": "1ms",
    "transaction_timeout": "1ms",
    "DateStyle": "German, DMY",
    "TimeZone": "Asia/Kolkata",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "lc_monetary": "C.UTF-8",
    "xmlbinary": "hex",
    "xmloption": "document",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "quote_all_identifiers": "on",
    "exit_on_error": "on",
    "gin_fuzzy_search_limit": "1",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "synchronous_commit": "off",
    "session_replication_role": "replica",
    "row_security": "on",
    "client_encoding": "LATIN1",
    "client_min_messages": "debug5",
    "search_path": "trap, public",
    "work_mem": "64kB",
    "enable_indexscan": "off",
    "jit_above_cost": "0",
    "plan_cache_mode": "force_custom_plan",
    "check_function_bodies": "off",
    "default_text_search_config": "pg_catalog.german",
}
TRAP = """
CREATE SCHEMA trap;
CREATE FUNCTION trap.lower(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'wrong' $$;
CREATE FUNCTION trap.trapped(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT true $$;
CREATE OPERATOR trap.= (LEFTARG = int, RIGHTARG = int, FUNCTION = trap.trapped);
"""
VALUES = """
CREATE TABLE t (
    id int PRIMARY KEY, d date, ts timestamptz, i interval, f float8, b bytea, m money, a text[], n text, e boolean
);
INSERT INTO t SELECT g, date '2024-02-28' + g, timestamptz '2024-02-28 23:30+00' + g * interval '1 h',
    g * interval '1 day 2 h', 1e0 / g, decode(lpad(g::text, 4, '0'), 'hex'), g, ARRAY['x', NULL, g::text],
    'it''s \\ ü', NULL
FROM generate_series(1, 30) AS g;
CREATE TABLE logged (id int PRIMARY KEY, v interval, f float8);
INSERT INTO logged SELECT g, g * interval '1 day', 1e0 / g FROM generate_series(1, 10) AS g;
ALTER TABLE logged REPLICA IDENTITY FULL;
"""
QUERIES = {
    "plain": "SELECT id, d, ts, i, f, b, m, a, n, e FROM t",
    "grouped": "SELECT d, max(ts) AS ts, sum(f) AS f, count(*) AS n FROM t GROUP BY d",
    "joined": "SELECT t.id, l.v, l.f, t.i FROM t JOIN logged AS l ON l.id = t.id WHERE t.n LIKE 'it%'",
}


@pytest.mark.spark
def test_no_setting_of_a_role_changes_or_ends_our_sessions(
    database: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's scan sessions died of `transaction_timeout`: only the main session had reset it."""
    role = f"moody_{make_conninfo(database).rpartition('_')[2]}"
    dsn = make_conninfo(database, user=role)
    with connect(database) as admin:
        admin.execute(VALUES.encode())
        admin.execute(f"CREATE ROLE {role} SUPERUSER LOGIN; {TRAP}".encode())
        known = {name for (name,) in admin.execute("SELECT lower(name) FROM pg_settings")}
        assert {name.lower() for name in HOSTILE} - known <= {"transaction_timeout"}
        for name, value in HOSTILE.items():
            if name.lower() in known:
                listed = value if name == "search_path" else f"'{value}'"
                admin.execute(f"ALTER ROLE {role} SET {name} = {listed}".encode())
        # Every table is scanned by Spark's tasks, each in a session of its own.
        monkeypatch.setattr(access_paths, "SMALL_PAGES", -1)
        try:
            with millstream.connect(
                dsn, spark=spark, settings=Settings(heartbeat_interval="100ms")
            ) as ms:
                _exact_by_trigger_and_log(ms, admin)
        finally:
            admin.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())


def _exact_by_trigger_and_log(ms: Millstream, admin: Connection) -> None:
    for name, query in QUERIES.items():
        ms.create_stream_table(
            f"public.{name}_st", query, schedule="continuous", refresh_mode="DIFFERENTIAL"
        )
    deadline = time.monotonic() + 60
    while "WAL" not in {source.mode for source in sources.every(ms.app.conn)}:
        assert time.monotonic() < deadline, sources.every(ms.app.conn)
        ms.app.steps = TransitionMemory()
        ms.tick()
    for change in (
        "UPDATE logged SET v = v * 2, f = f / 3 WHERE id < 4",
        "UPDATE t SET i = i * 2, f = f / 3, ts = ts + interval '1 min' WHERE id IN (1, 2)",
        "DELETE FROM t WHERE id = 3",
    ):
        admin.execute(change.encode())
        actions = {report.action for report in ms.refresh_all()}
        assert actions <= {"DIFFERENTIAL", "NO_DATA"}
        for name, query in QUERIES.items():
            oracle.check(ms.app.conn, query, f"public.{name}_st", close=1e-9)
    for name in QUERIES:
        assert ms.refresh(f"public.{name}_st", full=True).action == "FULL"
        assert ms.verify(f"public.{name}_st").ok


# -- clients and machines that are gone ----------------------------------------------------------

SLEEPING = """
import sys
from millstream.postgres.connection import connect
with connect(sys.argv[1], application_name="sleeper") as conn, conn.transaction():
    conn.execute("SELECT FROM t FOR UPDATE")
    print("locked", flush=True)
    conn.execute("SELECT pg_sleep(600)")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the server cannot look for its client there")
def test_the_locks_of_a_client_that_was_killed_in_a_long_statement_go(
    database: str, conn: Connection
) -> None:
    """The server noticed when the statement had ended: the locks were held for as long as a query
    took.
    """
    conn.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    asleep = "SELECT pid FROM pg_stat_activity WHERE application_name = 'sleeper' AND wait_event = 'PgSleep'"
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPING, database], stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"locked\n"
        assert wait_until(lambda: conn.execute(asleep).fetchall(), seconds=90)
        client.kill()
    assert wait_until(lambda: not conn.execute(asleep).fetchall(), seconds=90)
    conn.execute("SELECT FROM t FOR UPDATE NOWAIT")


def test_both_sides_of_a_connection_look_whether_the_other_is_there(database: str) -> None:
    """On a socket, which the tests use, the server's keepalives are 0 whatever is set."""
    with connect(database) as conn:
        interval = "1s" if sys.platform != "win32" else "0"
        assert conn.execute("SHOW client_connection_check_interval").fetchall() == [(interval,)]
        assert watchful(conn).get("client_connection_check_interval", "0") == interval
        given = conn.info.get_parameters()
        assert (given["keepalives_idle"], given["tcp_user_timeout"]) == ("10", "30000")
        assert "-c tcp_keepalives_idle=10" in given["options"]
    with connect(make_conninfo(database, keepalives_idle=60)) as conn:
        assert conn.info.get_parameters()["keepalives_idle"] == "60"


TRAPS = """
    CREATE FUNCTION public.unnest(integer[]) RETURNS SETOF integer LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.count(anyelement) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.current_schema() RETURNS name LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.parse_ident(text) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE FUNCTION public.sprung(tid, tid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE OPERATOR public.= (LEFTARG = tid, RIGHTARG = tid, FUNCTION = public.sprung);
    CREATE FUNCTION public.sprung(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap'; END $$;
    CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.sprung)
"""


@pytest.mark.spark
def test_functions_of_others_with_the_servers_names_are_not_called_by_us(
    database: str, spark: SparkSession, writer: psycopg.Connection
) -> None:
    """Our sessions had the user's search_path, and called them."""
    writer.execute(
        "CREATE TABLE t (id int PRIMARY KEY, g int, v int, w text); CREATE TABLE u (g int PRIMARY KEY)"
    )
    writer.execute(
        "INSERT INTO t SELECT i, i % 3, i, i FROM generate_series(1, 9) AS i; INSERT INTO u VALUES (1), (2)"
    )
    writer.execute(TRAPS)
    query = "SELECT t.g, sum(t.v) AS s, max(t.w) AS m FROM t JOIN u ON u.g = t.g GROUP BY t.g"
    with millstream.connect(
        make_conninfo(database, options="-csearch_path=public,pg_catalog"), spark=spark
    ) as ms:
        ms.create_stream_table("st", query)
        writer.execute("UPDATE t SET v = v + 1 WHERE id IN (1, 2); DELETE FROM t WHERE id = 8")
        assert ms.refresh("st").action == "DIFFERENTIAL"
        assert ms.verify("st").ok
        ms.drop_stream_table("st")


def test_scans_run_with_our_path_too(database: str) -> None:
    with psycopg.connect(pinned(make_conninfo(database, options="-csearch_path=public"))) as conn:
        assert conn.execute("SHOW search_path").fetchone() == ("pg_catalog, pg_temp",)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:hush@127.0.0.1:1/nowhere",
        "host=127.0.0.1 port=1 user=me password=hush sslpassword=hush",
        "postgresql://me:hush@127.0.0.1:none/nowhere?x",
        "user=me password=hush hush",
    ],
)
def test_no_error_contains_a_password(dsn: str) -> None:
    """Messages of libpq may quote the connection string."""
    with pytest.raises(MillstreamError) as caught:
        connect(dsn)
    assert "hush" not in str(caught.value.as_dict())
    assert "hush" not in "".join(traceback.format_exception(caught.value, chain=True)[1:])


def test_a_server_that_is_down_is_said_to_be_down() -> None:
    with pytest.raises(ServerDown) as caught:
        millstream.connect(f"postgresql://nobody@127.0.0.1:{free_port()}/nothing")
    assert caught.value.code == "MS001"
    assert caught.value.retryable


def test_a_dsn_that_is_none_is_refused() -> None:
    with pytest.raises(BadSetting, match="dsn"):
        millstream.connect("this is not a dsn")


def test_a_server_of_another_version_is_refused(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "OLDEST", 99)
    monkeypatch.setattr(connection, "NEWEST", 99)
    with pytest.raises(WrongVersion) as caught:
        millstream.connect(database)
    assert caught.value.code == "MS002"
    assert "99" in caught.value.detail
