"""Our sessions run no code of a role that does not have our rights; here they have all rights there
are.

The bug: whatever the owner of a function, a domain, a cast or a stream table wrote was run by a
superuser's session. Every attack here says `ALTER ROLE evil SUPERUSER`, and none may succeed.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millstream.catalog.definitions import foreign_code
from millstream.catalog.definitions.definition_digests import Digests
from millstream.catalog.installation import install
from millstream.client import Millstream
from millstream.compiler.server.plan_query import Terms, plan_query
from millstream.errors import ForeignCode, TargetAltered
from millstream.postgres.connection import Connection
from millstream.refresh import refresher as refreshing
from millstream.settings import Settings
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff

SETUP = """
    CREATE SCHEMA traps AUTHORIZATION {evil};
    GRANT USAGE ON SCHEMA traps TO PUBLIC;
    CREATE TABLE traps.t (id int PRIMARY KEY, v int, s text);
    ALTER TABLE traps.t OWNER TO {evil};
    INSERT INTO traps.t SELECT i, i, 'x' FROM generate_series(1, 5) AS i;
"""
# As evil. Neither fails nor changes a value, so that only the attribute of the role tells.
ATTACK = """
    CREATE FUNCTION traps.attack() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        RESET ROLE;
        EXECUTE 'ALTER ROLE {evil} SUPERUSER';
    EXCEPTION WHEN OTHERS THEN
        BEGIN
            EXECUTE 'ALTER ROLE {evil} SUPERUSER';
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END $$;
    CREATE FUNCTION traps.number(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
        $$ BEGIN PERFORM traps.attack(); RETURN $1; END $$;
    CREATE FUNCTION traps.truth(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
        $$ BEGIN PERFORM traps.attack(); RETURN true; END $$;
    CREATE FUNCTION traps.alike(int, int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
        $$ BEGIN PERFORM traps.attack(); RETURN $1 = $2; END $$;
    CREATE FUNCTION traps.added(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
        $$ BEGIN PERFORM traps.attack(); RETURN $1 + $2; END $$;
    CREATE FUNCTION traps.apart(float8, float8) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS
        $$ BEGIN PERFORM traps.attack(); RETURN $1 - $2; END $$;
    CREATE FUNCTION traps.fire() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM traps.attack(); RETURN NEW; END $$;
    CREATE TYPE traps.mood AS ENUM ('sad', 'ok');
    CREATE FUNCTION traps.text(traps.mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
        $$ BEGIN PERFORM traps.attack(); RETURN 'x'; END $$;
    CREATE DOMAIN traps.checked AS int CHECK (traps.truth(VALUE));
    CREATE DOMAIN traps.unchecked AS int;
    CREATE TYPE traps.span AS RANGE (subtype = float8, subtype_diff = traps.apart);
    CREATE OPERATOR traps.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = traps.alike);
    CREATE AGGREGATE traps.total(int) (SFUNC = traps.added, STYPE = int, INITCOND = '0');
    CREATE TABLE traps.odd (id int PRIMARY KEY, m traps.mood, d traps.unchecked, r traps.span, ds traps.unchecked[]);
    INSERT INTO traps.odd VALUES (1, 'sad', 1, '[1,2)', '{{1}}'), (2, 'ok', 2, '[2,3)', NULL);
    CREATE VIEW traps.seen AS SELECT id, traps.number(v) AS v FROM traps.t;
"""

QUERIES: dict[str, str] = {
    "a function": "SELECT id, traps.number(v) AS v FROM traps.t",
    "a function of a constant": "SELECT id, traps.number(1) AS v FROM traps.t",
    "a function in a condition": "SELECT id FROM traps.t WHERE traps.truth(v)",
    "an operator": "SELECT id FROM traps.t WHERE v OPERATOR(traps.===) 3",
    "an aggregate": "SELECT s, traps.total(v) AS v FROM traps.t GROUP BY s",
    "a function below a view": "SELECT id, v FROM traps.seen",
    "the check of a domain": "SELECT id, v::traps.checked AS v FROM traps.t",
    "a domain that may get a check": "SELECT id, d FROM traps.odd",
    "elements of such a domain": "SELECT id, ds FROM traps.odd",
    "a type whose text may become a cast": "SELECT id, m::text AS m FROM traps.odd",
    "a type that a text may become by a cast": "SELECT id, s::traps.mood AS m FROM traps.t",
    "a type whose JSON may become a cast": "SELECT id, to_jsonb(ARRAY[m]) AS m FROM traps.odd",
    "the difference function of a range": "SELECT id, r FROM traps.odd",
    "a cast": "SELECT id, m::text AS m FROM traps.odd /* defined */",
}
# On a stream table (id, v) of evil's own.
ON_TABLE: dict[str, str] = {
    "a trigger": "CREATE TRIGGER x BEFORE INSERT ON traps.st FOR EACH ROW EXECUTE FUNCTION traps.fire()",
    "a statement trigger": "CREATE TRIGGER x AFTER INSERT OR DELETE ON traps.st EXECUTE FUNCTION traps.fire()",
    "a deferred trigger": "CREATE CONSTRAINT TRIGGER x AFTER INSERT ON traps.st DEFERRABLE INITIALLY DEFERRED "
    "FOR EACH ROW EXECUTE FUNCTION traps.fire()",
    "an index": "CREATE INDEX x ON traps.st (traps.number(v))",
    "a partial index": "CREATE INDEX x ON traps.st (v) WHERE traps.truth(v)",
    "a constraint": "ALTER TABLE traps.st ADD CONSTRAINT x CHECK (traps.truth(v)) NOT VALID",
    "a constraint by an operator": "ALTER TABLE traps.st ADD CONSTRAINT x CHECK (v OPERATOR(traps.===) v) NOT VALID",
    "a default": "ALTER TABLE traps.st ADD COLUMN x int; ALTER TABLE traps.st ALTER x SET DEFAULT traps.number(1)",
    "a column of a domain": "ALTER TABLE traps.st ADD COLUMN x traps.checked",
    "a rule": "CREATE RULE x AS ON INSERT TO traps.st DO ALSO SELECT traps.number(1)",
    "a foreign key that cascades": "CREATE TABLE traps.child (id int REFERENCES traps.st ON DELETE CASCADE); "
    "INSERT INTO traps.child VALUES (1); "
    "CREATE TRIGGER x AFTER DELETE ON traps.child FOR EACH ROW EXECUTE FUNCTION traps.fire()",
    "a child": "CREATE TABLE traps.child () INHERITS (traps.st); "
    "CREATE TRIGGER x AFTER DELETE ON traps.child FOR EACH ROW EXECUTE FUNCTION traps.fire()",
}


@pytest.fixture
def evil(database: str) -> Iterator[str]:
    """The name of a role made for this test."""
    with psycopg.connect(database, autocommit=True) as conn:
        name = f"evil_{conn.info.dbname}"
        conn.execute(f"CREATE ROLE {name} LOGIN".encode())
        conn.execute(SETUP.format(evil=name).encode())
        install.install(conn)
    yield name
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


@pytest.fixture
def attacker(database: str, evil: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, user=evil, autocommit=True) as conn:
        conn.execute(ATTACK.format(evil=evil).encode())
        yield conn


def is_superuser(conn: psycopg.Connection, role: str) -> bool:
    return bool(
        conn.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", (role,)).fetchall()[0][0]
    )


# -- what a query calls ------------------------------------------------------------------------


@pytest.mark.parametrize("what", QUERIES)
def test_a_query_that_calls_code_of_others_is_refused_before_it_runs(
    conn: Connection, attacker: psycopg.Connection, evil: str, what: str
) -> None:
    if what == "a cast":
        attacker.execute("CREATE CAST (traps.mood AS text) WITH FUNCTION traps.text(traps.mood)")
    with pytest.raises(ForeignCode) as caught:
        plan_query(conn, QUERIES[what])
    assert caught.value.owners == [evil]
    assert not is_superuser(conn, evil)
    assert plan_query(conn, QUERIES[what], terms=Terms(None, (evil,))).blocks


def test_what_carries_no_code_of_others_is_not_refused(
    conn: Connection, attacker: psycopg.Connection
) -> None:
    """Tables, views, enums and composites may belong to anybody: reading them runs nothing of
    theirs.
    """
    attacker.execute(
        "CREATE TYPE traps.pair AS (a int, m traps.mood); ALTER TABLE traps.odd ADD p traps.pair"
    )
    attacker.execute("CREATE VIEW traps.plain AS SELECT id, m, p FROM traps.odd WHERE m = 'sad'")
    for query in (
        "SELECT id, v + 1 AS v FROM traps.t",
        "SELECT id, m, p FROM traps.plain",
        "SELECT m, count(*) AS n, max(m) AS most FROM traps.odd WHERE m > 'sad' GROUP BY m",
    ):
        assert plan_query(conn, query).blocks


def test_code_of_superusers_of_our_own_role_and_of_those_who_may_become_it_is_trusted(
    database: str, attacker: psycopg.Connection, evil: str
) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        mill = f"mill_{admin.info.dbname}"
        admin.execute(f"CREATE ROLE {mill} LOGIN; GRANT {evil} TO {mill}".encode())
        try:
            with psycopg.connect(database, user=mill, autocommit=True) as service:
                oid = "SELECT 'traps.number'::regproc::oid::int8"
                found: Digests = {("function", service.execute(oid).fetchall()[0][0]): None}

                def trusted() -> bool:
                    return not foreign_code.under(service, {1: found}, ())

                # A member of evil is more than evil.
                assert not trusted()
                admin.execute(f"ALTER FUNCTION traps.number OWNER TO {mill}".encode())
                assert trusted()
                admin.execute("ALTER FUNCTION traps.number OWNER TO tester")
                assert trusted()
                admin.execute(
                    f"ALTER FUNCTION traps.number OWNER TO {evil}; REVOKE {evil} FROM {mill}".encode()
                )
                assert not trusted()
                admin.execute(f"GRANT {mill} TO {evil}".encode())
                assert trusted()
        finally:
            admin.execute(f"DROP OWNED BY {mill} CASCADE; DROP ROLE {mill}".encode())


@pytest.mark.spark
def test_a_function_that_came_into_other_hands_is_not_called_any_more(
    ms: Millstream, attacker: psycopg.Connection, evil: str, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            "CREATE FUNCTION public.more(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'"
        )
        query = "SELECT id, public.more(v) AS v FROM traps.t"
        ms.create_stream_table("st", query, schedule="continuous")
        admin.execute(
            f"ALTER FUNCTION public.more OWNER TO {evil}; GRANT CREATE ON SCHEMA public TO {evil}".encode()
        )
        attacker.execute(
            "CREATE OR REPLACE FUNCTION public.more(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS "
            "$$ BEGIN PERFORM traps.attack(); RETURN $1; END $$; INSERT INTO traps.t VALUES (6, 6, 'x')"
        )
        with pytest.raises(ForeignCode, match="calls code of an untrusted role"):
            ms.refresh("st")
        assert ms.tick() == []
        assert not is_superuser(admin, evil)
        assert [one.status for one in ms.status()] == ["ERROR"]
        end_backoff(ms.app.conn)
        admin.execute("ALTER FUNCTION public.more OWNER TO tester")
        admin.execute(
            "CREATE OR REPLACE FUNCTION public.more(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 2'"
        )
        assert [(report.action, report.reason) for report in ms.tick()] == [
            ("REINITIALIZE", "FUNCTION_REPLACED")
        ]
        oracle.check(ms.app.conn, query, "st")
        assert not is_superuser(admin, evil)


@pytest.mark.spark
@pytest.mark.parametrize(("argument", "is_met"), [("bigint", False), ("anyelement", True)])
def test_a_function_of_the_same_name_that_fits_better_is_not_called(
    ms: Millstream,
    attacker: psycopg.Connection,
    evil: str,
    database: str,
    argument: str,
    is_met: bool,
) -> None:
    """The text of a query is read again by every statement; a call may then mean a function that
    came later.

    Arguments are written with the casts to the types of the function that was meant: only a
    polymorphic one can be met.
    """
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            f"CREATE FUNCTION public.more({argument}) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'"
        )
        ms.create_stream_table("st", "SELECT id, public.more(v) AS v FROM traps.t")
        admin.execute(f"GRANT CREATE ON SCHEMA public TO {evil}".encode())
        attacker.execute(
            "CREATE FUNCTION public.more(int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS "
            "$$ BEGIN PERFORM traps.attack(); RETURN $1; END $$; INSERT INTO traps.t VALUES (6, 6, 'x')"
        )
        if is_met:
            with pytest.raises(ForeignCode):
                ms.refresh("st")
        else:
            assert ms.refresh("st").reason == "FUNCTION_REPLACED"
            assert admin.execute("SELECT v FROM st WHERE id = 6").fetchone() == (7,)
        assert not is_superuser(admin, evil)


# -- what is on a stream table -----------------------------------------------------------------

# Whoever owns them.
REFUSED_FROM_ANYBODY = ("a rule", "a child")


@pytest.mark.spark
def test_code_that_others_put_on_a_stream_table_stops_it_and_is_not_run(
    ms: Millstream, attacker: psycopg.Connection, evil: str, database: str
) -> None:
    query = "SELECT id, v FROM traps.t"
    with psycopg.connect(database, autocommit=True) as admin:
        for number, (what, statement) in enumerate(ON_TABLE.items()):
            ms.create_stream_table("traps.st", query, owner=evil)
            attacker.execute("ALTER TABLE traps.st ADD PRIMARY KEY (id)")
            attacker.execute(statement.encode())
            attacker.execute(
                f"INSERT INTO traps.t VALUES (100 + {number}, 1, 'x'); DELETE FROM traps.t WHERE id = 1"
            )
            with pytest.raises(
                TargetAltered if what in REFUSED_FROM_ANYBODY else ForeignCode
            ) as caught:
                ms.refresh("traps.st")
            if isinstance(caught.value, ForeignCode):
                assert "attached to stream table" in caught.value.message
                assert caught.value.owners == [evil], what
                assert [one.status for one in ms.status()] == ["ERROR"]
            assert not is_superuser(admin, evil), what
            attacker.execute("DROP TABLE IF EXISTS traps.child CASCADE")
            ms.drop_stream_table("traps.st", cascade=True)
            attacker.execute("INSERT INTO traps.t VALUES (1, 1, 'x') ON CONFLICT DO NOTHING")


@pytest.mark.spark
@pytest.mark.parametrize(
    "what", ["a trigger", "a deferred trigger", "an index", "a constraint", "a default"]
)
def test_the_attacks_would_succeed_if_their_owner_were_trusted(
    ms: Millstream, attacker: psycopg.Connection, evil: str, database: str, what: str
) -> None:
    """The negative control: these tests can fail."""
    ms.app.settings = Settings(trusted_roles=(evil,))
    ms.create_stream_table("traps.st", "SELECT id, v FROM traps.t", owner=evil)
    attacker.execute(f"{ON_TABLE[what]}; INSERT INTO traps.t VALUES (6, 6, 'x')".encode())
    ms.refresh("traps.st")
    with psycopg.connect(database, autocommit=True) as admin:
        assert is_superuser(admin, evil)


@pytest.mark.spark
def test_a_stream_table_goes_on_when_foreign_code_is_gone(
    ms: Millstream, attacker: psycopg.Connection, evil: str
) -> None:
    query = "SELECT id, v FROM traps.t"
    ms.create_stream_table("traps.st", query, owner=evil, schedule="continuous")
    attacker.execute(f"{ON_TABLE['a trigger']}; INSERT INTO traps.t VALUES (6, 6, 'x')")
    assert ms.tick() == []
    attacker.execute("DROP TRIGGER x ON traps.st")
    end_backoff(ms.app.conn)
    assert [report.action for report in ms.tick()] == ["DIFFERENTIAL"]
    oracle.check(ms.app.conn, query, "traps.st")


@pytest.mark.spark
def test_nobody_puts_a_trigger_on_a_stream_table_between_the_look_and_the_write(
    ms: Millstream, attacker: psycopg.Connection, evil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ms.create_stream_table("traps.st", "SELECT id, v FROM traps.t", owner=evil)
    attacker.execute("INSERT INTO traps.t VALUES (6, 6, 'x'); SET lock_timeout = '200ms'")
    tried = list[str]()
    carry_out = getattr(refreshing, "carry_out")  # noqa: B009  # imported there, and replaced there

    # Of any arguments: they are handed on.
    def meanwhile(*args: object, **kwargs: object) -> object:
        for what in ("a trigger", "an index", "a constraint", "a rule"):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                attacker.execute(ON_TABLE[what].encode())
            tried.append(what)
        return carry_out(*args, **kwargs)

    monkeypatch.setattr(refreshing, "carry_out", meanwhile)
    assert ms.refresh("traps.st").action == "DIFFERENTIAL"
    assert len(tried) == 4


@pytest.mark.spark
def test_the_setting_trusted_roles_lets_code_of_a_role_run(
    ms: Millstream, attacker: psycopg.Connection, evil: str, database: str
) -> None:
    """The hint of the error, followed: an administrator who trusts the role says so."""
    attacker.execute(
        "CREATE TABLE traps.log (id int); CREATE FUNCTION traps.note() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO traps.log VALUES (NEW.id); RETURN NEW; END $$"
    )
    ms.app.settings = Settings(trusted_roles=(evil,))
    ms.create_stream_table("traps.st", "SELECT id, v FROM traps.t", owner=evil)
    attacker.execute(
        "CREATE TRIGGER x AFTER INSERT ON traps.st FOR EACH ROW EXECUTE FUNCTION traps.note()"
    )
    attacker.execute("INSERT INTO traps.t VALUES (6, 6, 'x')")
    assert ms.refresh("traps.st").action == "DIFFERENTIAL"
    assert attacker.execute("SELECT id FROM traps.log").fetchall() == [(6,)]
