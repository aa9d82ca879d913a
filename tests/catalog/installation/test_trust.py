"""Whose catalog is trusted by whom; and that nothing in an untrusted one is touched, whatever was
planted there.

The bug: any table named millstream.migrations was taken for ours. A role with CREATE on the
database prepared it with a trigger and became superuser when an administrator ran `millstream
list`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from millstream.catalog.installation import install, trust
from millstream.errors import NameTaken, NoRights, NotInstalled, UntrustedCatalog
from millstream.postgres.connection import Connection, session

# A role's attributes at the end stand for: it gets its rights at once (INHERIT), or must ask for
# them (NOINHERIT).
ROLES = {
    "evil": "LOGIN",
    "mill": "LOGIN",
    "admin": "LOGIN SUPERUSER",
    "heir": "LOGIN INHERIT",
    "asker": "LOGIN NOINHERIT",
    "stranger": "LOGIN",
}

ACTS: dict[str, Callable[[Connection], object]] = {
    "version": install.version,
    "require": install.require,
    "install": install.install,
    "uninstall": install.uninstall,
}

# Its calls are counted by a sequence, which is not set back when a transaction is.
CANARY = """
    CREATE SCHEMA traps;
    CREATE SEQUENCE traps.calls;
    GRANT USAGE ON SCHEMA traps TO PUBLIC;
    GRANT ALL ON SEQUENCE traps.calls TO PUBLIC;
    CREATE FUNCTION traps.run() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        PERFORM nextval('traps.calls');
        EXECUTE (SELECT format('ALTER ROLE %s SUPERUSER', nspowner::regrole) FROM pg_namespace WHERE nspname = 'traps');
        RETURN true;
    EXCEPTION WHEN insufficient_privilege THEN
        RETURN true;
    END $$;
    CREATE FUNCTION traps.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM traps.run(); RETURN NEW; END $$;
"""

CATALOG = """
    CREATE SCHEMA millstream; CREATE SCHEMA millstream_changes; CREATE SCHEMA millstream_state;
    CREATE TABLE millstream.migrations (version int, name text);
    INSERT INTO millstream.migrations SELECT g, 'x' FROM generate_series(1, 3) AS g;
    CREATE TABLE millstream.sources (relid oid, cdc_mode text, reason text);
    CREATE TABLE millstream.slots (name text);
    CREATE TABLE millstream.stream_tables (id int, relid oid);
    CREATE TABLE millstream.installation (id uuid);
    INSERT INTO millstream.installation VALUES (gen_random_uuid());
"""

# What a role with CREATE on the database prepares before the first install.
SQUATTED = {
    "a trigger on the migrations": CATALOG
    + "CREATE TRIGGER b BEFORE INSERT ON millstream.migrations FOR EACH ROW EXECUTE FUNCTION traps.fire()",
    "a view as the migrations": """
        CREATE SCHEMA millstream; CREATE SCHEMA millstream_changes; CREATE SCHEMA millstream_state;
        CREATE VIEW millstream.migrations AS SELECT 3 AS version, traps.run()::text AS name WHERE traps.run()
    """,
    "a rule on the migrations": CATALOG
    + "CREATE RULE r AS ON INSERT TO millstream.migrations DO ALSO SELECT traps.run()",
    "a policy on the migrations": CATALOG
    + """ALTER TABLE millstream.migrations ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
        CREATE POLICY p ON millstream.migrations USING (traps.run())""",
    "a default of the migrations": CATALOG
    + "ALTER TABLE millstream.migrations ADD COLUMN applied boolean DEFAULT traps.run()",
    "a check of the migrations": CATALOG
    + "ALTER TABLE millstream.migrations ADD CHECK (traps.run()) NOT VALID",
    "a view as the stream tables": CATALOG
    + """DROP TABLE millstream.stream_tables;
        CREATE VIEW millstream.stream_tables AS SELECT 1 AS id, NULL::oid AS relid WHERE traps.run()""",
    "a function of our name": CATALOG
    + """CREATE FUNCTION millstream.slot_health() RETURNS SETOF text LANGUAGE sql AS 'SELECT traps.run()::text'""",
    "only the buffers": """
        CREATE SCHEMA millstream_changes;
        CREATE FUNCTION millstream_changes.columns_stood() RETURNS boolean LANGUAGE sql AS 'SELECT traps.run()'
    """,
}


@pytest.fixture
def roles(conn: Connection) -> Iterator[dict[str, str]]:
    """By what they are: the names of roles made for this test; heir and asker are members of mill."""
    names = {kind: f"{kind}_{conn.info.dbname}" for kind in ROLES}
    for kind, name in names.items():
        conn.execute(f"CREATE ROLE {name} {ROLES[kind]}")
    database = conn.info.dbname
    conn.execute(f"GRANT CREATE ON DATABASE {database} TO {names['evil']}, {names['mill']}")
    conn.execute(f"GRANT {names['mill']} TO {names['heir']}, {names['asker']}")
    yield names
    for name in names.values():
        conn.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


Login = Callable[[str], Connection]


@pytest.fixture
def login(database: str, roles: dict[str, str]) -> Iterator[Login]:
    """Opens sessions as Millstream opens them, by what the role is; the superuser of the suite is
    "tester".
    """
    opened: list[Connection] = []

    def open_one(kind: str) -> Connection:
        opened.append(session(database.replace("tester@", f"{roles.get(kind, kind)}@")))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


def planted(conn: Connection) -> int:
    """How often what evil planted has run."""
    return int(
        conn.execute(
            "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM traps.calls"
        ).fetchall()[0][0]
    )


def assert_harmless(conn: Connection, evil: str) -> None:
    assert planted(conn) == 0, "foreign code ran"
    assert conn.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", (evil,)).fetchall() == [
        (False,)
    ]


# -- schemas that somebody prepared ----------------------------------------------------------


@pytest.mark.parametrize("trap", SQUATTED)
@pytest.mark.parametrize("visitor", ["tester", "mill", "stranger"])
def test_a_prepared_schema_runs_nothing(
    conn: Connection, login: Login, roles: dict[str, str], visitor: str, trap: str
) -> None:
    login("evil").execute(CANARY + SQUATTED[trap] + "; SELECT setval('traps.calls', 1, false)")
    for name, act in ACTS.items():
        outcome = outcome_of(act, login(visitor))
        # Where there is no table of that name, there is no catalog to be seen, and none to remove.
        assert outcome in ("refused", "not installed") or name in ("version", "uninstall")
        assert_harmless(conn, roles["evil"])


def outcome_of(act: Callable[[Connection], object], visitor: Connection) -> str:
    try:
        act(visitor)
    except (UntrustedCatalog, NameTaken, NoRights):
        return "refused"
    except NotInstalled:
        return "not installed"
    return "nothing to do"


def test_the_hints_against_prepared_schemas_work(
    conn: Connection, login: Login, roles: dict[str, str]
) -> None:
    login("evil").execute(CANARY + SQUATTED["a trigger on the migrations"])
    with pytest.raises(UntrustedCatalog) as refused:
        install.install(login("tester"))
    assert roles["evil"] in refused.value.message
    conn.execute(refused.value.hint[refused.value.hint.index("DROP SCHEMA") :])
    assert install.install(login("tester")) == install.known()
    assert_harmless(conn, roles["evil"])


def test_a_schema_without_a_catalog_is_an_error_whose_hint_works(
    conn: Connection, login: Login
) -> None:
    login("evil").execute(CANARY + SQUATTED["only the buffers"])
    with pytest.raises(NameTaken, match="millstream_changes") as refused:
        install.install(login("tester"))
    rename = refused.value.hint.removeprefix("Rename it with ").partition(",")[0]
    conn.execute(rename)
    assert install.install(login("tester")) == install.known()


# -- whose catalog is trusted by whom --------------------------------------------------------

TRUSTED, UNTRUSTED, NO_RIGHTS = "trusted", "untrusted", "no rights"
TRUST = [
    ("mill", "mill", TRUSTED),
    ("mill", "tester", UNTRUSTED),
    ("mill", "admin", UNTRUSTED),
    ("mill", "heir", UNTRUSTED),
    ("mill", "asker", NO_RIGHTS),
    ("mill", "stranger", NO_RIGHTS),
    ("mill", "evil", NO_RIGHTS),
    ("admin", "admin", TRUSTED),
    ("admin", "tester", TRUSTED),
    ("admin", "mill", NO_RIGHTS),
    ("admin", "stranger", NO_RIGHTS),
    ("tester", "admin", TRUSTED),
]


@pytest.mark.parametrize(("owner", "visitor", "outcome"), TRUST)
def test_a_catalog_is_trusted_by_its_owner_and_a_superusers_by_superusers(
    login: Login, roles: dict[str, str], owner: str, visitor: str, outcome: str
) -> None:
    install.install(login(owner))
    visiting = login(visitor)
    for act in (trust.check, *ACTS.values()):
        if outcome == TRUSTED:
            act(visiting)
            continue
        with pytest.raises(UntrustedCatalog if outcome == UNTRUSTED else NoRights) as refused:
            act(visiting)
        assert f'Connect as role "{roles.get(owner, owner)}"' in refused.value.hint


def test_a_member_of_the_superuser_that_installed_works_with_it(
    conn: Connection, login: Login
) -> None:
    install.install(login("admin"))
    visiting = login("stranger")
    name = visiting.info.user
    with pytest.raises(NoRights):
        trust.check(visiting)
    conn.execute(f"GRANT {name.replace('stranger', 'admin')} TO {name}")
    assert trust.check(visiting)


def test_a_superuser_who_has_set_the_role_does_not_trust_it_either(
    login: Login, roles: dict[str, str]
) -> None:
    """Code of the owner's could set the role back."""
    install.install(login("mill"))
    visiting = login("tester")
    visiting.execute(f"SET ROLE {roles['mill']}")
    with pytest.raises(UntrustedCatalog, match='which role "tester" does not trust'):
        trust.check(visiting)


# -- what others planted in a catalog that is ours -------------------------------------------

# By kind: what evil makes, with a right that it should not have had, or that was revoked since.
PLANTED = {
    "table": ("CREATE", "CREATE TABLE millstream.x (a int)"),
    "view": ("CREATE", "CREATE VIEW millstream.x AS SELECT traps.run()"),
    "materialized view": ("CREATE", "CREATE MATERIALIZED VIEW millstream_state.x AS SELECT 1 AS a"),
    "sequence": ("CREATE", "CREATE SEQUENCE millstream_changes.x"),
    "function": ("CREATE", "CREATE FUNCTION millstream.x() RETURNS int LANGUAGE sql AS 'SELECT 1'"),
    "procedure": ("CREATE", "CREATE PROCEDURE millstream.x() LANGUAGE sql AS 'SELECT 1'"),
    "aggregate": ("CREATE", "CREATE AGGREGATE millstream.x (int) (SFUNC = int4pl, STYPE = int)"),
    "enum": ("CREATE", "CREATE TYPE millstream.x AS ENUM ('a')"),
    "composite type": ("CREATE", "CREATE TYPE millstream.x AS (a int)"),
    "domain": ("CREATE", "CREATE DOMAIN millstream.x AS int CHECK (traps.run())"),
    "range type": ("CREATE", "CREATE TYPE millstream.x AS RANGE (SUBTYPE = int)"),
    "operator": (
        "CREATE",
        "CREATE OPERATOR millstream.=== (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int)",
    ),
    "collation": ("CREATE", 'CREATE COLLATION millstream.x FROM "C"'),
    "conversion": (
        "CREATE",
        "CREATE CONVERSION millstream.x FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8",
    ),
    "text search dictionary": (
        "CREATE",
        "CREATE TEXT SEARCH DICTIONARY millstream.x (TEMPLATE = simple)",
    ),
    "text search configuration": (
        "CREATE",
        "CREATE TEXT SEARCH CONFIGURATION millstream.x (COPY = simple)",
    ),
    "statistics": (
        "CREATE",
        "CREATE TABLE traps.t (a int, b int); CREATE STATISTICS millstream.x ON a, b FROM traps.t",
    ),
    "trigger": (
        "TRIGGER",
        "CREATE TRIGGER x BEFORE INSERT ON millstream.settings FOR EACH ROW EXECUTE FUNCTION traps.fire()",
    ),
    "foreign key": (
        "REFERENCES",
        """CREATE TABLE traps.t (a text REFERENCES millstream.settings ON DELETE CASCADE);
        CREATE CONSTRAINT TRIGGER x AFTER DELETE ON traps.t DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION traps.fire()""",
    ),
}


@pytest.mark.parametrize("owner", ["mill", "tester"])
@pytest.mark.parametrize("kind", PLANTED)
def test_what_another_role_made_in_our_schemas_stops_us_and_the_hint_works(
    conn: Connection, login: Login, roles: dict[str, str], owner: str, kind: str
) -> None:
    ours, evil = login(owner), login("evil")
    install.install(ours)
    evil.execute(CANARY)
    right, statement = PLANTED[kind]
    schemas = ", ".join(install.SCHEMAS)
    on = f"SCHEMA {schemas}" if right == "CREATE" else "TABLE millstream.settings"
    ours.execute(
        f"GRANT USAGE ON SCHEMA {schemas} TO {roles['evil']}; GRANT {right} ON {on} TO {roles['evil']}"
    )
    evil.execute(statement)
    # As long as it has the right, and after it is taken away again: what it made is still there.
    for _ in range(2):
        for act in ACTS.values():
            with pytest.raises(UntrustedCatalog) as refused:
                act(ours)
            assert roles["evil"] in refused.value.detail
        ours.execute(f"REVOKE {right} ON {on} FROM {roles['evil']}")
    conn.execute(refused.value.hint.partition(": ")[2])
    install.require(ours)
    assert_harmless(conn, roles["evil"])


@pytest.mark.parametrize(
    ("right", "on"),
    [
        *[("CREATE", f"SCHEMA {schema}") for schema in install.SCHEMAS],
        *[
            (right, "TABLE millstream.sources")
            for right in ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER")
        ],
        ("UPDATE (name)", "TABLE millstream.sources"),
        ("REFERENCES", "TABLE millstream.sources"),
        ("ALL", "TABLE millstream.sources"),
        ("EXECUTE", "FUNCTION millstream_changes.columns_stand"),
    ],
)
@pytest.mark.parametrize("grantee", ["evil", "PUBLIC"])
def test_a_right_granted_by_mistake_stops_us_and_the_hint_works(
    login: Login, roles: dict[str, str], grantee: str, right: str, on: str
) -> None:
    ours = login("mill")
    install.install(ours)
    to = roles.get(grantee, grantee)
    ours.execute(f"GRANT {right} ON {on} TO {to}")
    schemas = ", ".join(install.SCHEMAS)
    ours.execute(f"GRANT USAGE ON SCHEMA {schemas} TO {roles['evil']}")
    with pytest.raises(UntrustedCatalog) as refused:
        install.require(ours)
    assert to in refused.value.detail
    ours.execute(refused.value.hint.partition(": ")[2])
    install.require(ours)


# -- what anybody may do, and must not be able to stop us by ---------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER DEFAULT PRIVILEGES IN SCHEMA millstream GRANT ALL ON TABLES TO PUBLIC",
        "CREATE FUNCTION traps.f() RETURNS oid LANGUAGE sql BEGIN ATOMIC SELECT 'millstream'::regnamespace::oid; END",
        "CREATE VIEW traps.v AS SELECT 'millstream_state'::regnamespace",
        "CREATE TABLE traps.t (a regnamespace DEFAULT 'millstream_changes'::regnamespace)",
        """CREATE TABLE traps.t (a int);
        CREATE STATISTICS traps.s ON ((a = 1 AND 'millstream'::regnamespace IS NOT NULL)) FROM traps.t""",
    ],
)
def test_a_stranger_cannot_stop_us_by_naming_our_schemas(login: Login, statement: str) -> None:
    ours, evil = login("mill"), login("evil")
    install.install(ours)
    evil.execute(CANARY + statement)
    install.require(ours)
    install.uninstall(ours)


def test_default_privileges_open_nothing(login: Login, roles: dict[str, str]) -> None:
    ours, evil = login("mill"), login("evil")
    for what in ("SCHEMAS", "TABLES", "SEQUENCES", "FUNCTIONS", "TYPES"):
        ours.execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON {what} TO {roles['evil']}, PUBLIC")
    install.install(ours)
    install.require(ours)
    for forbidden in (
        "SELECT * FROM millstream.stream_tables",
        "CREATE TABLE millstream.x (a int)",
        "SELECT * FROM millstream.slot_health()",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            evil.execute(forbidden)
    # Even somebody who is later let into the schema has no right on what was made there.
    ours.execute(f"GRANT USAGE ON SCHEMA millstream TO {roles['evil']}")
    install.require(ours)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        evil.execute("BEGIN; LOCK TABLE millstream.stream_tables IN ACCESS SHARE MODE")


def test_a_table_of_a_superuser_in_our_schema_is_no_danger(conn: Connection, login: Login) -> None:
    ours = login("mill")
    install.install(ours)
    conn.execute("CREATE TABLE millstream.precious (a int)")
    install.require(ours)
