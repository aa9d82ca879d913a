"""The SQL door: who may ask for what, as whom a request is recorded, and how its answer is waited
for.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from millstream.bundled.server import Server, embedded
from millstream.catalog import requests
from millstream.catalog.installation import install
from millstream.catalog.processes import leadership
from millstream.postgres.connection import Connection, connect

ROLES = """
    CREATE ROLE tester SUPERUSER LOGIN; CREATE ROLE mill LOGIN; CREATE ROLE owner LOGIN; CREATE ROLE stranger LOGIN;
    CREATE ROLE millstream_operator; CREATE ROLE millstream_reader;
    CREATE ROLE operator LOGIN IN ROLE millstream_operator; CREATE ROLE member LOGIN IN ROLE owner;
    CREATE ROLE reader LOGIN IN ROLE millstream_reader;
"""


SHOP = """
    CREATE SCHEMA shop; CREATE TABLE shop.totals (n int); ALTER TABLE shop.totals OWNER TO owner;
    GRANT USAGE, CREATE ON SCHEMA shop TO owner, stranger;
    INSERT INTO millstream.stream_tables (
        schema_name, name, relid, query, canonical_query, schedule, refresh_mode, status
    )
    VALUES ('shop', 'totals', 'shop.totals'::regclass, 'q', 'q', '1s', 'AUTO', 'ACTIVE');
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own, since roles belong to a server; with a stream table `shop.totals` of the
    role `owner`.
    """
    bindir = os.environ.get("MILLSTREAM_TEST_BINDIR") or None
    with embedded(bindir=bindir, settings={"fsync": "off"}) as running:
        with psycopg.connect(running.dsn, autocommit=True) as admin:
            admin.execute(ROLES)
            admin.execute("GRANT CREATE ON DATABASE postgres TO mill, owner, stranger")
            with connect(running.dsn_for("mill", "postgres")) as mill:
                install.install(mill)
                admin.execute(SHOP)
                # Grants the owner its rights.
                install.install(mill)
        yield running


@pytest.fixture
def database(server: Server) -> str:
    """The one database of this file."""
    return server.dsn_for("tester", "postgres")


@pytest.fixture
def mill(database: str) -> Iterator[Connection]:
    """A session of the service role; there are no requests and no services."""
    with connect(database.replace("tester@", "mill@")) as connected:
        connected.execute("DELETE FROM millstream.requests")
        connected.execute("DELETE FROM millstream.services")
        yield connected


def as_role(database: str, role: str) -> psycopg.Connection:
    return psycopg.connect(database.replace("tester@", f"{role}@"), autocommit=True)


def asked(mill: Connection) -> list[tuple[str, str]]:
    """Who has asked for what, in order."""
    return mill.execute(
        "SELECT requested_by::text, kind FROM millstream.requests ORDER BY id"
    ).fetchall()


def refusal(conn: psycopg.Connection, statement: str) -> str | None:
    """The SQLSTATE that a statement ends with."""
    try:
        conn.execute(statement.encode())
    except psycopg.Error as error:
        return error.sqlstate
    return None


REFRESH = "millstream.refresh_stream_table('shop.totals')"
CALLS = {
    "create": "SELECT millstream.create_stream_table('shop.more', 'SELECT 1')",
    "create_or_replace": "SELECT millstream.create_or_replace_stream_table('shop.more', 'SELECT 1')",
    "refresh": f"SELECT {REFRESH}",
    "verify": "SELECT millstream.verify_stream_table('shop.totals')",
    "alter": "SELECT millstream.alter_stream_table('shop.totals', schedule => '5m')",
    "alter query": "SELECT millstream.alter_stream_table('shop.totals', query => 'SELECT 2')",
    "drop": "SELECT millstream.drop_stream_table('shop.totals')",
    "validate": "SELECT millstream.validate_query('SELECT 1')",
    "explain_query": "SELECT millstream.explain_query('SELECT 1')",
}
ON_TABLES = {"refresh", "verify", "alter", "alter query", "drop"}


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("tester", set(CALLS)),
        ("mill", set(CALLS)),
        ("operator", set(CALLS) - {"alter query", "drop"}),
        ("owner", ON_TABLES),
        ("member", ON_TABLES),
        ("reader", set()),
        ("stranger", set()),
    ],
)
def test_each_role_may_ask_for_what_it_could_do_itself(
    database: str, mill: Connection, role: str, allowed: set[str]
) -> None:
    with as_role(database, role) as conn:
        ended = {what: refusal(conn, call) for what, call in CALLS.items()}
    assert {what for what, sqlstate in ended.items() if sqlstate is None} == allowed
    assert set(ended.values()) <= {None, "MS004", "42501"}
    assert [kind for who, kind in asked(mill) if who != role] == []


# -- who asks --------------------------------------------------------------------------------


def test_a_request_is_of_the_role_that_was_set(database: str, mill: Connection) -> None:
    with as_role(database, "member") as conn:
        conn.execute("SET ROLE owner")
        conn.execute(CALLS["refresh"].encode())
        conn.execute("RESET ROLE")
        conn.execute(CALLS["refresh"].encode())
    assert asked(mill) == [("owner", "refresh"), ("member", "refresh")]


def test_code_that_others_run_asks_with_the_rights_of_its_owner(
    database: str, conn: Connection, mill: Connection
) -> None:
    """The session is a superuser's: neither its user nor its role setting says who asks."""
    conn.execute("GRANT millstream_operator TO stranger")
    with as_role(database, "stranger") as stranger:
        stranger.execute(
            "CREATE SCHEMA own; CREATE TABLE own.t (n int); INSERT INTO own.t VALUES (1);"
            "CREATE FUNCTION own.trap() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS"
            " $$ SELECT millstream.drop_stream_table('shop.totals') $$;"
            "CREATE FUNCTION own.ask(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS"
            " $$ BEGIN PERFORM millstream.drop_stream_table('shop.totals'); RETURN n; END $$;"
            "CREATE INDEX ON own.t (n)"
        )
        # An index over an expression is made by its owner, who is refused; ANALYZE by a superuser
        # would evaluate it.
        with pytest.raises(psycopg.Error):
            stranger.execute("CREATE INDEX ON own.t (own.ask(n))")
        stranger.execute(
            "CREATE MATERIALIZED VIEW own.m AS SELECT own.ask(n) FROM own.t WITH NO DATA"
        )
    for statement in ("SELECT own.trap()", "REFRESH MATERIALIZED VIEW own.m"):
        with pytest.raises(psycopg.Error, match='role "stranger" may not ask for this: drop'):
            conn.execute(statement.encode())
    conn.execute("REVOKE millstream_operator FROM stranger")
    assert asked(mill) == []


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO millstream.own_requests (kind, stream_table, arguments, search_path, status)"
        " VALUES ('refresh', 'shop.totals', '{}', '', 'DONE')",
        "INSERT INTO millstream.own_requests (id, kind, stream_table, arguments, search_path)"
        " OVERRIDING SYSTEM VALUE VALUES (1, 'refresh', 'shop.totals', '{}', '')",
        "INSERT INTO millstream.requests (kind, stream_table, search_path, requested_by)"
        " VALUES ('drop', 'shop.totals', '', 'owner')",
        "UPDATE millstream.own_requests SET status = 'DONE'",
        "DELETE FROM millstream.own_requests",
        "SELECT FROM millstream.requests",
    ],
)
def test_who_has_asked_and_the_answer_cannot_be_forged(
    database: str, mill: Connection, statement: str
) -> None:
    with as_role(database, "operator") as conn:
        assert refusal(conn, statement) == "42501"


def test_requests_of_others_are_not_seen(database: str, mill: Connection) -> None:
    with as_role(database, "operator") as operator, as_role(database, "owner") as owner:
        [(id,)] = operator.execute(CALLS["refresh"].encode()).fetchall()
        assert owner.execute("SELECT FROM millstream.own_requests").fetchall() == []
        assert refusal(owner, f"CALL millstream.wait_for({id})") == "MS502"


def test_an_operators_role_of_somebody_else_counts_for_nothing(
    database: str, mill: Connection
) -> None:
    """A role that is not granted the right to insert is not an operator's, whatever its members are
    granted.
    """
    mill.execute("REVOKE ALL ON millstream.own_requests FROM millstream_operator")
    mill.execute("GRANT ALL ON millstream.own_requests TO operator")
    try:
        with as_role(database, "operator") as operator:
            assert refusal(operator, CALLS["refresh"]) == "MS004"
    finally:
        mill.execute("REVOKE ALL ON millstream.own_requests FROM operator")
        install.install(mill)


@pytest.mark.parametrize(
    "arguments", ['[["query", "SELECT 2"]]', '["query"]', '"query"', "null", "7"]
)
def test_arguments_that_are_no_object_are_refused(
    database: str, mill: Connection, arguments: str
) -> None:
    """The bug: an operator gave the stream table of another role a query, in an array of pairs."""
    by_function = f"SELECT millstream.request('alter', 'shop.totals', '{arguments}')"
    by_view = (
        "INSERT INTO millstream.own_requests (kind, stream_table, arguments, search_path)"
        f" VALUES ('alter', 'shop.totals', '{arguments}', '')"
    )
    with as_role(database, "operator") as operator:
        assert [refusal(operator, statement) for statement in (by_function, by_view)] == [
            "MS005",
            "MS005",
        ]
    assert asked(mill) == []


# -- what is checked at once -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sqlstate"),
    [
        ("create_stream_table(NULL, 'SELECT 1')", "MS005"),
        ("create_stream_table('a.b.c', 'SELECT 1')", "MS005"),
        ("create_stream_table('a b', 'SELECT 1')", "MS005"),
        ("create_stream_table('a', ' ')", "MS005"),
        ("create_stream_table('a', NULL)", "MS005"),
        ("create_stream_table('a', 'SELECT 1', refresh_mode => 'SOMETIMES')", "MS005"),
        ("create_stream_table('a', 'SELECT 1', initialize => NULL)", "MS005"),
        ("create_stream_table('a', 'SELECT 1', cdc_mode => 'log')", "MS005"),
        ("create_stream_table('a', repeat('x', 1000001))", "MS005"),
        ("alter_stream_table('shop.totals', status => 'ERROR')", "MS005"),
        ("alter_stream_table('shop.totals', schedule => '')", "MS005"),
        ("refresh_stream_table('totals')", "MS202"),
        ("drop_stream_table('shop.none')", "MS202"),
        ("validate_query(NULL)", "MS005"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(
    database: str, mill: Connection, call: str, sqlstate: str
) -> None:
    with as_role(database, "operator") as conn:
        assert refusal(conn, f"SELECT millstream.{call}") == sqlstate
    assert asked(mill) == []


def test_names_are_looked_up_along_the_path_of_whoever_asks(
    database: str, mill: Connection
) -> None:
    with as_role(database, "owner") as conn:
        conn.execute(
            'CREATE SCHEMA "Odd, name"; SET search_path = nowhere, "Odd, name", shop, pg_temp'
        )
        conn.execute("SELECT millstream.refresh_stream_table('totals')")
    assert mill.execute("SELECT search_path FROM millstream.requests").fetchall() == [
        ('"Odd, name", shop',)
    ]


def test_a_path_full_of_traps_changes_nothing(database: str, mill: Connection) -> None:
    with as_role(database, "owner") as conn:
        conn.execute(
            "CREATE SCHEMA traps;"
            "CREATE FUNCTION traps.jsonb_strip_nulls(jsonb) RETURNS jsonb LANGUAGE sql AS"
            " $$ SELECT '{\"query\": 1}'::jsonb $$;"
            "CREATE FUNCTION traps.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
            " $$ SELECT 'infinity'::timestamptz $$;"
            "CREATE OPERATOR traps.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = int8ne);"
            "SET search_path = traps, pg_catalog, shop; SET TimeZone = 'Pacific/Apia'"
        )
        [(id,)] = conn.execute(
            "SELECT millstream.alter_stream_table('totals', schedule => '5m')"
        ).fetchall()
        mill.execute("UPDATE millstream.requests SET status = 'DONE', result = '{}'")
        assert conn.execute(f"CALL millstream.wait_for({id})".encode()).fetchall() == [({},)]
    arguments = "SELECT arguments - 'session', arguments -> 'session' ->> 'TimeZone' FROM millstream.requests"
    assert mill.execute(arguments).fetchall() == [({"schedule": "5m"}, "Pacific/Apia")]


def test_a_request_wakes_the_service_and_warns_where_none_runs(
    database: str, mill: Connection
) -> None:
    mill.execute("LISTEN millstream_wake")
    with as_role(database, "operator") as conn:
        warnings = list[str]()
        conn.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
        conn.execute(CALLS["refresh"].encode())
        assert warnings == ["the request waits: no service is running on this database"]
        leadership.register(
            mill, leadership.Registration(uuid4(), 1, "here", "0", mill.info.backend_pid)
        )
        conn.execute(CALLS["refresh"].encode())
        assert len(warnings) == 1
    assert [one.payload for one in mill.notifies(timeout=60, stop_after=2)] == [
        "request",
        "request",
    ]


def test_nobody_fills_the_table_of_requests(database: str, mill: Connection) -> None:
    with as_role(database, "owner") as conn:
        conn.execute("SET client_min_messages = error")
        conn.execute(
            "SELECT millstream.refresh_stream_table('shop.totals') FROM generate_series(1, 1000)"
        )
        assert refusal(conn, CALLS["refresh"]) == "MS503"


def test_each_role_has_its_turn_and_refreshes_of_one_table_count_once(mill: Connection) -> None:
    """The bug: a hundred requests of one role hid those of all others."""
    with mill.transaction(force_rollback=True):
        mill.execute("DELETE FROM millstream.requests")
        mill.execute("ALTER TABLE millstream.requests DISABLE TRIGGER USER")
        mill.execute(
            "INSERT INTO millstream.requests (kind, stream_table, search_path, requested_by) "
            "SELECT 'refresh', 't' || n % 120, '', 'owner' FROM generate_series(1, 240) AS n "
            "UNION ALL SELECT 'refresh', 't', '', 'stranger'"
        )
        found = [one.stream_table for one in requests.waiting(mill)]
    assert len(found) == 100
    assert found[-1] == "t"
    assert len(set(found)) == 100


# -- waiting ---------------------------------------------------------------------------------


def test_waiting_returns_the_result(database: str, mill: Connection) -> None:
    """The request is made by an argument of the call, and answered while it waits."""
    found = list[object]()

    def ask() -> None:
        with as_role(database, "operator") as conn:
            found.extend(
                conn.execute(f"CALL millstream.wait_for({REFRESH}, '90 s')".encode()).fetchall()
            )

    mill.execute("LISTEN millstream_wake")
    asking = threading.Thread(target=ask)
    asking.start()
    [_] = mill.notifies(timeout=90, stop_after=1)
    mill.execute(
        "UPDATE millstream.requests SET status = 'DONE', result = '{\"action\": \"NO_DATA\"}'"
    )
    asking.join()
    assert found == [({"action": "NO_DATA"},)]


ERROR = {"code": "MS402", "message": "it's broken", "detail": "100% of it", "hint": "Mend it."}


@pytest.mark.parametrize("parts", [("detail", "hint"), ("detail",), ("hint",), ()])
def test_waiting_raises_the_services_error_as_its_own(
    database: str, mill: Connection, parts: tuple[str, ...]
) -> None:
    error = {
        name: value if name in ("code", "message", *parts) else "" for name, value in ERROR.items()
    }
    with as_role(database, "operator") as conn:
        [(id,)] = conn.execute(CALLS["refresh"].encode()).fetchall()
        mill.execute(
            "UPDATE millstream.requests SET status = 'FAILED', error = %s", (json.dumps(error),)
        )
        with pytest.raises(psycopg.Error) as raised:
            conn.execute(f"CALL millstream.wait_for({id})".encode())
    told = raised.value.diag
    assert (told.sqlstate, told.message_primary) == ("MS402", "it's broken")
    assert (told.message_detail or "", told.message_hint or "") == (error["detail"], error["hint"])


def test_waiting_ends_with_the_reason(database: str, mill: Connection) -> None:
    with as_role(database, "operator") as conn:
        [(id,)] = conn.execute(CALLS["refresh"].encode()).fetchall()
        with pytest.raises(psycopg.Error, match="is not done yet") as raised:
            conn.execute(f"CALL millstream.wait_for({id}, '0 s')".encode())
    assert raised.value.diag.sqlstate == "MS501"
    assert "No service is running" in (raised.value.diag.message_hint or "")


def test_waiting_in_a_transaction_is_refused_and_waits_for_nothing(
    database: str, mill: Connection
) -> None:
    with as_role(database, "operator") as conn, conn.transaction(force_rollback=True):
        assert refusal(conn, f"CALL millstream.wait_for({REFRESH})") == "2D000"
