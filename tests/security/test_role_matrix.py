"""Every role, and what it reaches: each schema, table and function of ours, each command, each
method of the API.

    superuser      an administrator of the server
    service        installed Millstream, owns the catalog, runs refreshes
    owner          the stream table was created for it; owns the table that the query reads
    operator       a member of millstream_operator
    reader         a member of millstream_reader
    application    writes to the source and reads the stream table
    stranger       may connect

The objects come from pg_catalog, the commands and methods from the code: whatever is added is
closed to all but the service role, or named here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import millstream
from millstream import Millstream
from millstream.bundled.server import Server, embedded
from millstream.cli import app as cli
from millstream.cli.exit_codes import Exit
from millstream.errors import MillstreamError, NoRights, UntrustedCatalog
from millstream.service.app import App
from millstream.service.monitoring.doctor import doctor
from millstream.settings import Settings

ROLES = ("superuser", "service", "owner", "operator", "reader", "application", "stranger")
READING = {
    ("schema", "millstream", "USAGE"),
    ("relation", "millstream.stream_tables_info", "SELECT"),
    ("relation", "millstream.refresh_history_info", "SELECT"),
    ("relation", "millstream.pg_stat_stream_tables", "SELECT"),
    ("relation", "millstream.blocks_info", "SELECT"),
    ("function", "millstream.slot_health()", "EXECUTE"),
    ("function", "millstream.check_cdc_health()", "EXECUTE"),
    ("function", "millstream.stream_table_id(text,name[])", "EXECUTE"),
    ("function", "millstream.needs_reinit(bigint)", "EXECUTE"),
    ("function", "millstream.staleness_of(bigint)", "EXECUTE"),
    ("function", "millstream.status()", "EXECUTE"),
    ("function", "millstream.get_staleness(text,name[])", "EXECUTE"),
    ("function", "millstream.get_refresh_history(text,integer,name[])", "EXECUTE"),
    ("function", "millstream.st_refresh_stats(interval)", "EXECUTE"),
    ("function", "millstream.explain_st(text,name[])", "EXECUTE"),
    ("function", "millstream.held_back_buffers()", "EXECUTE"),
    ("function", "millstream.service_status()", "EXECUTE"),
    ("function", "millstream.health_check()", "EXECUTE"),
}
_VISIBILITY = ("wait_visible", "is_visible", "is_captured", "service_is_running")
VISIBILITY = {("function", f"millstream.{name}", "EXECUTE") for name in _VISIBILITY}
WAITING = VISIBILITY | {
    ("function", f"millstream.{name}", "EXECUTE") for name in ("wait_for", "raise_answer")
}
ASKING = WAITING | {
    ("schema", "millstream", "USAGE"),
    ("relation", "millstream.own_requests", "SELECT"),
    ("relation", "millstream.own_requests", "INSERT"),
    ("function", "millstream.request", "EXECUTE"),
    ("function", "millstream.alter_stream_table", "EXECUTE"),
    ("function", "millstream.drop_stream_table", "EXECUTE"),
    ("function", "millstream.refresh_stream_table", "EXECUTE"),
    ("function", "millstream.verify_stream_table", "EXECUTE"),
}
CREATING = {
    ("function", "millstream.create_stream_table", "EXECUTE"),
    ("function", "millstream.create_or_replace_stream_table", "EXECUTE"),
    ("function", "millstream.validate_query", "EXECUTE"),
    ("function", "millstream.explain_query", "EXECUTE"),
}
LOOKING = {"operator", "reader"}
# What they may do besides; all else is for the superuser and the service role.
OPEN = {"reader": READING | VISIBILITY, "operator": READING | ASKING | CREATING, "owner": ASKING}

SET_UP = """
    CREATE ROLE superuser SUPERUSER LOGIN;
    CREATE ROLE service LOGIN;
    CREATE ROLE owner LOGIN;
    CREATE ROLE millstream_operator;
    CREATE ROLE millstream_reader;
    CREATE ROLE operator LOGIN IN ROLE millstream_operator;
    CREATE ROLE reader LOGIN IN ROLE millstream_reader;
    CREATE ROLE application LOGIN;
    CREATE ROLE stranger LOGIN;
    GRANT owner TO service;
    GRANT CREATE ON DATABASE postgres TO service, owner;
    REVOKE CREATE ON SCHEMA public FROM PUBLIC;
"""
SHOP = """
    CREATE SCHEMA shop;
    CREATE TABLE shop.orders (id int PRIMARY KEY, region text, amount int);
    INSERT INTO shop.orders VALUES (1, 'north', 10), (2, 'south', 20);
    GRANT USAGE ON SCHEMA shop TO application, reader, operator;
    GRANT SELECT, INSERT ON shop.orders TO application;
"""
QUERY = (
    "SELECT region, max(amount) AS top, count(DISTINCT id) AS n FROM shop.orders GROUP BY region"
)


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[Server]:
    """A server of its own, since roles belong to a server: with all roles, a source and a stream
    table.
    """
    bindir = os.environ.get("MILLSTREAM_TEST_BINDIR") or None
    with embedded(bindir=bindir, settings={"fsync": "off"}) as running:
        with psycopg.connect(running.dsn, autocommit=True) as admin:
            admin.execute(SET_UP)
        with connected(running, "owner") as owner:
            owner.execute(SHOP)
            with millstream.connect(dsn(running, "service"), spark=spark) as ms:
                report = ms.create_stream_table(
                    "shop.totals", QUERY, schedule="manual", owner="owner"
                )
                assert report is not None
                assert report.action == "FULL"
            owner.execute("GRANT SELECT ON shop.totals TO application")
        yield running


def dsn(server: Server, role: str) -> str:
    return server.dsn_for(role, "postgres")


def connected(server: Server, role: str) -> psycopg.Connection:
    return psycopg.connect(dsn(server, role), autocommit=True)


# -- objects ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probe:
    """A right on an object, and a statement that takes it, if there is a harmless one."""

    kind: str
    name: str
    right: str
    statement: str | None
    has: str
    """An expression: does the role have the right, and that to enter the schema?"""

    def is_open_to(self, role: str) -> bool:
        names = {self.name, self.name.partition("(")[0]}
        opened = OPEN.get(role, set())
        return role in ("superuser", "service") or any(
            (self.kind, name, self.right) in opened for name in names
        )


# Every schema, relation and function of ours: kind, schema, name as it is written, relkind, types
# of the arguments.
OBJECTS = """
    SELECT 'schema', nspname::text, quote_ident(nspname), NULL, NULL::text[]
    FROM pg_namespace WHERE nspname LIKE 'millstream%'
    UNION ALL
    SELECT 'relation', n.nspname, format('%I.%I', n.nspname, c.relname), c.relkind::text, NULL
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname LIKE 'millstream%' AND c.relkind NOT IN ('i', 'I', 'c', 't')
    UNION ALL
    SELECT 'function', n.nspname, p.oid::regprocedure::text, p.prokind::text,
        ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n) ORDER BY n)
    FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname LIKE 'millstream%'
    ORDER BY 1, 3
"""
COLUMN_RIGHTS = ("SELECT", "INSERT", "UPDATE", "REFERENCES")
TABLE_RIGHTS = ("DELETE", "TRUNCATE", "TRIGGER")


def probes(conn: psycopg.Connection) -> list[Probe]:
    found = list[Probe]()
    for kind, schema, name, relkind, arguments in conn.execute(OBJECTS).fetchall():
        if kind == "schema":
            found += _of_schema(name)
        elif kind == "function":
            found.append(_of_function(schema, name, arguments, is_procedure=relkind == "p"))
        elif relkind == "S":
            found += [
                _of_relation(schema, name, right, None, "sequence")
                for right in ("USAGE", "SELECT", "UPDATE")
            ]
        else:
            maintain = ("MAINTAIN",) if conn.info.server_version >= 170000 else ()
            rights = (*COLUMN_RIGHTS, *TABLE_RIGHTS, *maintain)
            found += [
                _of_relation(schema, name, right, _statement(name, right, relkind))
                for right in rights
            ]
    return found


def _of_schema(name: str) -> list[Probe]:
    has = "has_schema_privilege({role}, '" + name + "', '{right}')"
    return [
        Probe("schema", name, "USAGE", None, has.replace("{right}", "USAGE")),
        Probe(
            "schema",
            name,
            "CREATE",
            f"CREATE TABLE {name}.probe ()",
            has.replace("{right}", "CREATE"),
        ),
    ]


def _of_function(schema: str, name: str, arguments: list[str], *, is_procedure: bool) -> Probe:
    nulls = ", ".join(f"NULL::{argument}" for argument in arguments)
    has = f"has_function_privilege({{role}}, '{name}', 'EXECUTE')"
    # A procedure may end the transaction that would undo it.
    statement = None if is_procedure else f"SELECT {name.partition('(')[0]}({nulls})"
    return Probe("function", name, "EXECUTE", statement, _entered(schema, has))


def _of_relation(
    schema: str, name: str, right: str, statement: str | None, kind: str = "table"
) -> Probe:
    function = (
        "has_any_column_privilege"
        if right in COLUMN_RIGHTS and kind == "table"
        else f"has_{kind}_privilege"
    )
    has = f"{function}({{role}}, '{name}', '{right}')"
    return Probe("relation", name, right, statement, _entered(schema, has))


def _entered(schema: str, has: str) -> str:
    """The same, where the role may enter the schema."""
    return f"has_schema_privilege({{role}}, '{schema}', 'USAGE') AND {has}"


def _statement(name: str, right: str, relkind: str) -> str | None:
    """A statement that needs the right and is rolled back; a view that cannot be written to
    complains of that first.
    """
    if right == "SELECT":
        return f"SELECT 1 FROM {name} LIMIT 0"
    by_right = {
        "INSERT": "EXPLAIN INSERT INTO {} DEFAULT VALUES",
        "DELETE": "DELETE FROM {} WHERE false",
    }
    return by_right[right].format(name) if relkind == "r" and right in by_right else None


def test_each_schema_table_and_function_is_closed_but_for_what_is_named_here(
    server: Server,
) -> None:
    with connected(server, "superuser") as admin:
        every = probes(admin)
        kinds = {
            (one.kind, name, one.right)
            for one in every
            for name in (one.name, one.name.partition("(")[0])
        }
        assert kinds >= set().union(*OPEN.values())
        # Besides the catalog there are a buffer and the state of a block.
        assert any(name.startswith("millstream_changes.changes_") for _, name, _ in kinds)
        assert any(
            kind == "relation" and name.startswith("millstream_state.") for kind, name, _ in kinds
        )
        wrong = list[str]()
        for role in ROLES:
            asked = sql.SQL(" UNION ALL ").join(
                sql.SQL("SELECT {}, " + one.has.replace("{role}", f"'{role}'")).format(number)
                for number, one in enumerate(every)
            )
            has = {number for number, given in admin.execute(asked) if given}
            wrong += [
                f"{role}: {one.right} on {one.kind} {one.name} is {'open' if number in has else 'closed'}"
                for number, one in enumerate(every)
                if (number in has) != one.is_open_to(role)
            ]
    assert wrong == []


def test_what_is_closed_is_refused_when_it_is_tried(server: Server) -> None:
    with connected(server, "superuser") as admin:
        every = [one for one in probes(admin) if one.statement]
    wrong = list[str]()
    for role in ROLES:
        with connected(server, role) as conn:
            wrong += [
                f"{role}: {one.statement}"
                for one in every
                if (_sqlstate(conn, one.statement or "") == "42501") == one.is_open_to(role)
            ]
    assert wrong == []


def test_nobody_but_the_service_can_lock_what_is_ours(server: Server) -> None:
    with connected(server, "superuser") as admin:
        tables = [
            one.name for one in probes(admin) if one.kind == "relation" and one.right == "TRIGGER"
        ]
    wrong = list[str]()
    for role in ("owner", "operator", "reader", "application", "stranger"):
        with connected(server, role) as conn:
            for name, mode in product(tables, ("ACCESS SHARE", "ROW SHARE")):
                # Whoever may read a relation may lock it against being altered, and against nothing
                # else.
                allowed = mode == "ACCESS SHARE" and ("relation", name, "SELECT") in OPEN.get(
                    role, set()
                )
                if (_sqlstate(conn, f"LOCK TABLE {name} IN {mode} MODE") == "42501") == allowed:
                    wrong.append(f"{role}: {name} in {mode}")
    assert wrong == []


def _sqlstate(conn: psycopg.Connection, statement: str) -> str | None:
    """What the server says of a statement, whose effect is undone; None where it succeeds."""
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(statement.encode())
    except psycopg.Error as error:
        return error.sqlstate
    return None


def test_readers_see_how_things_stand_and_no_value_of_a_row(server: Server) -> None:
    with connected(server, "service") as service:
        text = "division by zero: 'secret' [MS402]\nDETAIL: secret"
        service.execute("UPDATE millstream.stream_tables SET last_error = %s", (text,))
    for role in sorted(LOOKING):
        with connected(server, role) as conn:
            cursor = conn.execute("SELECT * FROM millstream.stream_tables_info")
            row = dict(
                zip(
                    [column.name for column in cursor.description or ()],
                    cursor.fetchall()[0],
                    strict=True,
                )
            )
            facts = ("schema_name", "name", "owner", "status", "is_populated", "last_error_code")
            assert [row[fact] for fact in facts] == [
                "shop",
                "totals",
                "owner",
                "ACTIVE",
                True,
                "MS402",
            ]
            assert "secret" not in str(row)
            assert "SELECT" not in str(row)
            functions = (
                "status()",
                "get_refresh_history('shop.totals')",
                "explain_st('shop.totals')",
                "health_check()",
            )
            for function in functions:
                shown = str(
                    conn.execute(f"SELECT * FROM millstream.{function}".encode()).fetchall()
                )
                assert shown != "[]"
                assert "secret" not in shown
                assert "max(" not in shown
            sources = conn.execute(
                "SELECT source::text, cdc_mode FROM millstream.check_cdc_health()"
            ).fetchall()
            assert sources == [("shop.orders", "TRIGGER")]
            assert _sqlstate(conn, "SELECT FROM shop.totals") == "42501"
            assert _sqlstate(conn, "SELECT FROM shop.orders") == "42501"


TABLES = {
    # Of the source and of the stream table, who may read and who may write.
    "SELECT FROM shop.orders": {"superuser", "service", "owner", "application"},
    "INSERT INTO shop.orders VALUES (9, 'west', 1)": {
        "superuser",
        "service",
        "owner",
        "application",
    },
    "DELETE FROM shop.orders": {"superuser", "service", "owner"},
    "SELECT FROM shop.totals": {"superuser", "service", "owner", "application"},
    # The guard refuses whoever has the right.
    "INSERT INTO shop.totals VALUES ('west', 1, 1)": set[str](),
    "UPDATE shop.totals SET n = 7": set[str](),
    "DELETE FROM shop.totals": set[str](),
    "TRUNCATE shop.totals": set[str](),
}


def test_the_source_and_the_stream_table_are_their_owners(server: Server) -> None:
    found = {statement: set[str]() for statement in TABLES}
    for role in ROLES:
        with connected(server, role) as conn:
            for statement, allowed in found.items():
                if _sqlstate(conn, statement) is None:
                    allowed.add(role)
    assert found == TABLES


# -- commands --------------------------------------------------------------------------------

REFUSED: dict[str, type[MillstreamError]] = {
    # A catalog of a less privileged role could have its code run by an administrator.
    "superuser": UntrustedCatalog,
    **dict.fromkeys(("owner", "operator", "reader", "application", "stranger"), NoRights),
}
CALLS: dict[str, tuple[str, ...]] = {
    "create_stream_table": ("shop.more", "SELECT id FROM shop.orders"),
    "create_or_replace_stream_table": ("shop.more", "SELECT id FROM shop.orders"),
    "validate": ("SELECT id FROM shop.orders",),
    "alter_stream_table": ("shop.totals",),
    "drop_stream_table": ("shop.totals",),
    "refresh": ("shop.totals",),
    "refresh_all": (),
    "tick": (),
    "verify": ("shop.totals",),
    "explain": ("shop.totals",),
    "table": ("shop.totals",),
    "status": (),
    "history": ("shop.totals",),
    "health": (),
    "settings": (),
    "set_setting": ("cdc_mode", "trigger"),
    "reset_setting": ("cdc_mode",),
    "adopt": (),
    "uninstall": (),
}
# Not built yet, and no work in the database.
HARMLESS_CALLS = {"events", "close"}


def test_no_method_of_the_api_works_for_another_role_than_the_service(
    server: Server, spark: SparkSession
) -> None:
    methods = {
        name
        for name, value in vars(Millstream).items()
        if callable(value) and not name.startswith("_")
    }
    assert methods == set(CALLS) | HARMLESS_CALLS
    wrong = list[str]()
    for role, refusal in REFUSED.items():
        with pytest.raises(refusal):
            millstream.connect(dsn(server, role))
        # Without the checks of `connect`, each method still makes its own.
        with Millstream(App(dsn(server, role), Settings(), spark, None)) as ms:
            for method, arguments in CALLS.items():
                try:
                    getattr(ms, method)(*arguments)
                    wrong.append(f"{role}: {method} was done")
                except MillstreamError as error:
                    if not isinstance(error, refusal):
                        wrong.append(f"{role}: {method}: {error!r}")
    assert wrong == []
    with millstream.connect(dsn(server, "service"), spark=spark) as ms:
        assert [one.name for one in ms.status()] == ["totals"]


COMMANDS: dict[str, tuple[str, ...]] = {
    "init": (),
    "run": (),
    "alter": ("shop.totals", "--schedule", "1h"),
    "create": ("shop.more", "SELECT id FROM shop.orders"),
    "list": (),
    "status": (),
    "refresh": ("shop.totals",),
    "history": ("shop.totals",),
    "explain": ("shop.totals",),
    "verify": ("shop.totals",),
    "health": (),
    "settings": ("set", "cdc_mode", "trigger"),
    "adopt": (),
    "drop": ("shop.totals",),
    "uninstall": ("--yes",),
}
# The demo has a server of its own; the doctor looks at whatever can be seen, and changes nothing.
FOR_ANYBODY = {"demo", "doctor"}
FOR_READERS = {"top"}


def test_no_command_works_for_another_role_than_the_service(server: Server) -> None:
    assert {cli.name_of(command) for command in cli.COMMANDS} == set(
        COMMANDS
    ) | FOR_ANYBODY | FOR_READERS
    wrong = list[str]()
    for role, refusal in REFUSED.items():
        for command, arguments in COMMANDS.items():
            ended = CliRunner().invoke(
                cli.app, [command, *arguments], env={"MILLSTREAM_DSN": dsn(server, role)}
            )
            if ended.exit_code != Exit.SURROUNDINGS or refusal.code not in ended.stderr:
                wrong.append(
                    f"{role}: {command} ended with {ended.exit_code}: {ended.stderr or ended.exception}"
                )
    assert wrong == []


def test_top_shows_how_things_stand_to_readers_and_to_nobody_else(server: Server) -> None:
    for role in ROLES:
        ended = CliRunner().invoke(
            cli.app, ["top", "--once"], env={"MILLSTREAM_DSN": dsn(server, role)}
        )
        if role in LOOKING | {"service"}:
            assert (ended.exit_code, "shop.totals" in ended.stdout) == (Exit.OK, True), role
        else:
            assert (ended.exit_code, REFUSED[role].code in ended.stderr) == (
                Exit.SURROUNDINGS,
                True,
            ), role


def test_the_doctor_shows_each_role_what_is_missing_and_changes_nothing(server: Server) -> None:
    for role in ROLES:
        found = {check.name: check for check in doctor(dsn(server, role))}
        assert found["server"].ok, role


def test_the_service_can_do_all_of_it(server: Server, spark: SparkSession) -> None:
    """Last in this file: the catalog is gone afterwards."""
    with (
        millstream.connect(dsn(server, "service"), spark=spark) as ms,
        connected(server, "application") as application,
    ):
        application.execute("INSERT INTO shop.orders VALUES (3, 'north', 30)")
        assert ms.refresh("shop.totals").action == "DIFFERENTIAL"
        assert ms.verify("shop.totals").ok
        rows = "SELECT region, top, n FROM shop.totals ORDER BY region"
        assert application.execute(rows).fetchall() == [("north", 30, 2), ("south", 20, 1)]
        ms.create_stream_table("shop.more", "SELECT id FROM shop.orders", schedule="manual")
        ms.drop_stream_table("shop.more")
        ms.uninstall()
    with connected(server, "reader") as reader:
        assert _sqlstate(reader, "SELECT FROM millstream.stream_tables_info") == "42P01"
