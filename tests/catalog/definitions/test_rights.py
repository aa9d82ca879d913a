"""A stream table shows nothing that its owner may not read: PostgreSQL decides, at creation and
when rights change.

The bug: views were inlined and read with the rights of whoever runs Millstream. The owner of a view
replaced it by one over a secret table, and the next refresh copied the secret into the stream
table.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millstream.catalog.definitions import rights
from millstream.catalog.installation import install
from millstream.client import Millstream
from millstream.compiler.server.plan_query import Terms, plan_query
from millstream.errors import NoRights, OwnerLacksRight
from millstream.postgres.connection import Connection
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff

SETUP = """
    CREATE SCHEMA shop; GRANT USAGE ON SCHEMA shop TO {app}, {viewer};
    CREATE TABLE shop.t (id int PRIMARY KEY, a int, b int);
    INSERT INTO shop.t SELECT i, i, i FROM generate_series(1, 5) AS i;
    CREATE TABLE shop.u (id int PRIMARY KEY, a int);
    INSERT INTO shop.u SELECT i, i FROM generate_series(1, 5) AS i;
    CREATE VIEW shop.v AS SELECT id, a FROM shop.u; ALTER VIEW shop.v OWNER TO {viewer};
    CREATE VIEW shop.i WITH (security_invoker) AS SELECT id, a FROM shop.u;
    CREATE VIEW shop.twice AS SELECT id, a FROM shop.v;
    CREATE FUNCTION shop.f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 + 1; END';
    CREATE FUNCTION shop.inlined(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1';
    CREATE FUNCTION shop.alike(int, int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 = $2; END';
    CREATE OPERATOR shop.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = shop.alike);
    CREATE AGGREGATE shop.total(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
"""
# As before any case.
START = """
    ALTER VIEW shop.v OWNER TO {viewer};
    REVOKE ALL ON ALL TABLES IN SCHEMA shop FROM {app}, {viewer}, {group}, PUBLIC;
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA shop FROM {app}, {viewer}, {group}, PUBLIC;
    REVOKE {group} FROM {app};
    GRANT USAGE ON SCHEMA shop TO {app}, {viewer};
    GRANT SELECT ON shop.v, shop.i, shop.twice TO {app};
"""

# What is read -> the query, the statement that gives the right, the statement that takes it.
CASES: dict[str, tuple[str, str, str]] = {
    "table": (
        "SELECT id, a FROM shop.t",
        "GRANT SELECT ON shop.t TO {app}",
        "REVOKE SELECT ON shop.t FROM {app}",
    ),
    "column": (
        "SELECT id, a FROM shop.t",
        "GRANT SELECT (id, a) ON shop.t TO {app}",
        "REVOKE SELECT (a) ON shop.t FROM {app}",
    ),
    "column in a condition": (
        "SELECT id FROM shop.t WHERE b > 0",
        "GRANT SELECT (id, b) ON shop.t TO {app}",
        "REVOKE SELECT (b) ON shop.t FROM {app}",
    ),
    "by membership": (
        "SELECT id, a FROM shop.t",
        "GRANT SELECT ON shop.t TO {group}; GRANT {group} TO {app}",
        "REVOKE {group} FROM {app}",
    ),
    "by everybody": (
        "SELECT id, a FROM shop.t",
        "GRANT SELECT ON shop.t TO PUBLIC",
        "REVOKE SELECT ON shop.t FROM PUBLIC",
    ),
    "schema": (
        "SELECT id, a FROM shop.t",
        "GRANT SELECT ON shop.t TO {app}; GRANT USAGE ON SCHEMA shop TO {app}",
        "REVOKE USAGE ON SCHEMA shop FROM {app}",
    ),
    "rights of a view's owner": (
        "SELECT id, a FROM shop.v",
        "GRANT SELECT ON shop.u TO {viewer}",
        "REVOKE SELECT ON shop.u FROM {viewer}",
    ),
    "rights of the owner of a view below a view": (
        "SELECT id, a FROM shop.twice",
        "GRANT SELECT ON shop.u TO {viewer}",
        "REVOKE SELECT ON shop.u FROM {viewer}",
    ),
    "rights of the invoker of a view": (
        "SELECT id, a FROM shop.i",
        "GRANT SELECT ON shop.u TO {app}",
        "REVOKE SELECT ON shop.u FROM {app}",
    ),
    "view that becomes its invoker's": (
        "SELECT id, a FROM shop.v",
        "ALTER VIEW shop.v RESET (security_invoker); GRANT SELECT ON shop.u TO {viewer}",
        "ALTER VIEW shop.v SET (security_invoker = true)",
    ),
    "view that gets another owner": (
        "SELECT id, a FROM shop.v",
        "ALTER VIEW shop.v OWNER TO {viewer}; GRANT SELECT ON shop.u TO {viewer}",
        "ALTER VIEW shop.v OWNER TO {group}",
    ),
    "function": (
        "SELECT id, shop.f(a) AS f FROM shop.t",
        "GRANT SELECT ON shop.t TO {app}; GRANT EXECUTE ON FUNCTION shop.f TO {app}",
        "REVOKE EXECUTE ON FUNCTION shop.f FROM {app}",
    ),
    "function that is inlined": (
        "SELECT id FROM shop.t WHERE shop.inlined(a) > 3",
        "GRANT SELECT ON shop.t TO {app}; GRANT EXECUTE ON FUNCTION shop.inlined TO {app}",
        "REVOKE EXECUTE ON FUNCTION shop.inlined FROM {app}",
    ),
    "function of a constant": (
        "SELECT id, shop.f(1) AS f FROM shop.t",
        "GRANT SELECT ON shop.t TO {app}; GRANT EXECUTE ON FUNCTION shop.f TO {app}",
        "REVOKE EXECUTE ON FUNCTION shop.f FROM {app}",
    ),
    "operator": (
        "SELECT id FROM shop.t WHERE a OPERATOR(shop.===) 3",
        "GRANT SELECT ON shop.t TO {app}; GRANT EXECUTE ON FUNCTION shop.alike TO {app}",
        "REVOKE EXECUTE ON FUNCTION shop.alike FROM {app}",
    ),
    "aggregate": (
        "SELECT b, shop.total(a) AS s FROM shop.t GROUP BY b",
        "GRANT SELECT ON shop.t TO {app}; GRANT EXECUTE ON FUNCTION shop.total TO {app}",
        "REVOKE EXECUTE ON FUNCTION shop.total FROM {app}",
    ),
    "table in a subquery": (
        "SELECT id FROM shop.t WHERE EXISTS (SELECT FROM shop.u WHERE u.id = t.id)",
        "GRANT SELECT ON shop.t TO {app}; GRANT SELECT ON shop.u TO {app}",
        "REVOKE SELECT ON shop.u FROM {app}",
    ),
    "row-level security": (
        "SELECT id, a FROM shop.t",
        "GRANT SELECT ON shop.t TO {app}; ALTER TABLE shop.t DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE shop.t ENABLE ROW LEVEL SECURITY",
    ),
    "row-level security of a view's owner": (
        "SELECT id, a FROM shop.v",
        "GRANT SELECT ON shop.u TO {viewer}; ALTER TABLE shop.u DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE shop.u ENABLE ROW LEVEL SECURITY",
    ),
    "row-level security that was bypassed": (
        "SELECT id, a FROM shop.t",
        "GRANT SELECT ON shop.t TO {app}; ALTER TABLE shop.t ENABLE ROW LEVEL SECURITY; ALTER ROLE {app} BYPASSRLS",
        "ALTER ROLE {app} NOBYPASSRLS",
    ),
    "superuser": (
        "SELECT id, a FROM shop.t",
        "ALTER ROLE {app} SUPERUSER",
        "ALTER ROLE {app} NOSUPERUSER",
    ),
}


@pytest.fixture
def roles(database: str) -> Iterator[dict[str, str]]:
    """An owner of stream tables, an owner of views, and a group: names made for this test."""
    with psycopg.connect(database, autocommit=True) as conn:
        names = {role: f"{role}_{conn.info.dbname}" for role in ("app", "viewer", "group")}
        for name in names.values():
            conn.execute(f"CREATE ROLE {name} LOGIN".encode())
        yield names
    with psycopg.connect(database, autocommit=True) as conn:
        for name in names.values():
            conn.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


@pytest.fixture
def admin(database: str, roles: dict[str, str]) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        install.install(conn)
        run(conn, roles, SETUP + START)
        yield conn


def run(conn: psycopg.Connection, roles: dict[str, str], statement: str) -> None:
    conn.execute(statement.format(**roles).encode())


# -- at creation -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_what_the_owner_may_not_read_is_refused_until_it_may(
    conn: Connection, admin: psycopg.Connection, roles: dict[str, str], case: str
) -> None:
    query, grant, revoke = CASES[case]
    run(admin, roles, grant)
    run(admin, roles, revoke)
    with pytest.raises(OwnerLacksRight) as caught:
        plan_query(conn, query, terms=Terms(roles["app"]))
    assert caught.value.waits
    run(admin, roles, grant)
    assert plan_query(conn, query, terms=Terms(roles["app"])).blocks


def test_a_policy_is_named_as_the_reason(
    conn: Connection, admin: psycopg.Connection, roles: dict[str, str]
) -> None:
    run(
        admin,
        roles,
        "GRANT SELECT ON shop.t TO {app}; ALTER TABLE shop.t ENABLE ROW LEVEL SECURITY",
    )
    with pytest.raises(OwnerLacksRight, match="row-level security") as caught:
        plan_query(conn, "SELECT id FROM shop.t", terms=Terms(roles["app"]))
    assert "BYPASSRLS" in caught.value.hint


def test_the_check_leaves_role_and_transaction_as_they_were(
    conn: Connection, admin: psycopg.Connection, roles: dict[str, str]
) -> None:
    with conn.transaction():
        with pytest.raises(OwnerLacksRight):
            rights.check(conn, "SELECT id FROM shop.t", roles["app"])
        assert conn.execute("SELECT current_user::text").fetchone() == ("tester",)
        rights.check(conn, "SELECT id FROM shop.t", "tester")


def test_a_role_that_we_are_no_member_of_cannot_be_an_owner_and_the_hint_works(
    database: str, admin: psycopg.Connection, roles: dict[str, str]
) -> None:
    run(admin, roles, "GRANT SELECT ON shop.t TO {app}")
    with psycopg.connect(database, user=roles["group"], autocommit=True) as service:
        with pytest.raises(
            NoRights, match=f'maintain a stream table of role "{roles["app"]}"'
        ) as caught:
            rights.owner_for(service, roles["app"])
        with pytest.raises(NoRights, match="maintain a stream table"):
            rights.check(service, "SELECT id FROM shop.t", roles["app"])
        admin.execute(caught.value.hint.removeprefix("As an administrator: ").encode())
        assert rights.owner_for(service, roles["app"]) == roles["app"]
        rights.check(service, "SELECT id FROM shop.t", roles["app"])
        assert rights.owner_for(service, None) == roles["group"]


# -- in the life of a stream table -------------------------------------------------------------


def table_owner(conn: psycopg.Connection, name: str) -> str:
    return str(
        conn.execute(
            f"SELECT relowner::regrole::text FROM pg_class WHERE oid = '{name}'::regclass"
        ).fetchall()[0][0]
    )


@pytest.mark.spark
def test_a_stream_table_belongs_to_the_role_that_was_asked_for(
    ms: Millstream, admin: psycopg.Connection, roles: dict[str, str], database: str
) -> None:
    run(admin, roles, "GRANT SELECT ON shop.t TO {app}; CREATE SCHEMA own AUTHORIZATION {app}")
    query = "SELECT b, count(*) AS n FROM shop.t GROUP BY b"
    ms.create_stream_table("own.theirs", query, owner=roles["app"])
    ms.create_stream_table("ours", query)
    assert [table_owner(admin, name) for name in ("own.theirs", "ours")] == [roles["app"], "tester"]
    assert {one.name: one.owner for one in ms.status()} == {
        "theirs": roles["app"],
        "ours": "tester",
    }
    admin.execute("INSERT INTO shop.t VALUES (10, 10, 1)")
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
    oracle.check(ms.app.conn, query, "own.theirs")
    with psycopg.connect(database, user=roles["app"], autocommit=True) as owner:
        assert owner.execute("SELECT sum(n) FROM own.theirs").fetchone() == (6,)
        for hidden in (
            "millstream.stream_tables",
            "millstream_state.state_1_0",
            "millstream_changes.changes_1",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                owner.execute(f"SELECT * FROM {hidden}".encode())
    ms.drop_stream_table("own.theirs")


@pytest.mark.spark
def test_a_right_that_is_revoked_stops_the_stream_table_until_it_is_back(
    ms: Millstream, admin: psycopg.Connection, roles: dict[str, str]
) -> None:
    """One stream table for each kind of right; each in turn loses its own, while the others go on."""
    for number, case in enumerate(CASES):
        run(admin, roles, START + CASES[case][1])
        ms.create_stream_table(f"st_{number}", CASES[case][0], schedule="1h", owner=roles["app"])
        run(admin, roles, CASES[case][2])
        admin.execute(
            f"INSERT INTO shop.t VALUES (100 + {number}, 1, 1); INSERT INTO shop.u VALUES (100 + {number}, 1)"
        )
        before = admin.execute(f"SELECT count(*) FROM st_{number}".encode()).fetchone()
        with pytest.raises(OwnerLacksRight):
            ms.refresh(f"st_{number}")
        status = {one.name: one for one in ms.status()}[f"st_{number}"]
        assert (
            status.status,
            admin.execute(f"SELECT count(*) FROM st_{number}".encode()).fetchone(),
        ) == (
            "ERROR",
            before,
        )
        assert status.last_error
        assert "MS010" in status.last_error
        run(admin, roles, CASES[case][1])
        assert ms.refresh(f"st_{number}").action == "DIFFERENTIAL"
        assert {one.name: one.status for one in ms.status()}[f"st_{number}"] == "ACTIVE"
        oracle.check(ms.app.conn, CASES[case][0], f"st_{number}")
        ms.drop_stream_table(f"st_{number}")


@pytest.mark.spark
def test_a_view_that_is_replaced_by_one_over_a_secret_copies_nothing(
    ms: Millstream, admin: psycopg.Connection, roles: dict[str, str], database: str
) -> None:
    run(admin, roles, "GRANT SELECT ON shop.u TO {viewer}; GRANT CREATE ON SCHEMA shop TO {viewer}")
    admin.execute(
        "CREATE TABLE shop.secret (id int PRIMARY KEY, a int); INSERT INTO shop.secret VALUES (666, 666)"
    )
    ms.create_stream_table("st", "SELECT id, a FROM shop.v", schedule="continuous")
    with psycopg.connect(database, user=roles["viewer"], autocommit=True) as viewer:
        viewer.execute("CREATE OR REPLACE VIEW shop.v AS SELECT id, a FROM shop.secret")
    for _ in range(5):
        assert ms.tick() == []
        end_backoff(ms.app.conn)
    assert [one.status for one in ms.status()] == ["ERROR"]
    assert [entry.status for entry in ms.history("st")].count("FAILED") == 1
    assert admin.execute("SELECT count(*) FROM st WHERE id = 666").fetchone() == (0,)
    run(admin, roles, "GRANT SELECT ON shop.secret TO {viewer}")
    assert [(report.action, report.reason) for report in ms.tick()] == [
        ("REINITIALIZE", "SOURCE_REPLACED")
    ]
    oracle.check(ms.app.conn, "SELECT id, a FROM shop.v", "st")


@pytest.mark.spark
def test_row_level_security_that_is_bypassed_is_reported_at_creation_and_in_status(
    ms: Millstream, admin: psycopg.Connection, roles: dict[str, str]
) -> None:
    """A superuser created a stream table over a table with policies, and nothing said that the copy
    has none.
    """
    admin.execute(
        "ALTER TABLE shop.t ENABLE ROW LEVEL SECURITY; CREATE VIEW shop.all_t AS SELECT id, a FROM shop.t"
    )
    report = ms.create_stream_table("st", "SELECT id, a FROM shop.t")
    assert report is not None
    (told,) = [notice for notice in report.notices if "shop.t has row-level security" in notice]
    run(admin, roles, "GRANT SELECT ON shop.all_t TO {app}")
    again = ms.create_stream_table(
        "through_view", "SELECT id, a FROM shop.all_t", owner=roles["app"]
    )
    assert again is not None
    assert told in again.notices
    assert {one.name: one.notices for one in ms.status()} == {
        "st": (told,),
        "through_view": (told,),
    }
    admin.execute("ALTER TABLE shop.t DISABLE ROW LEVEL SECURITY")
    assert [one.notices for one in ms.status()] == [(), ()]
