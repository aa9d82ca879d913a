"""Tables, keys, members and types, as PostgreSQL itself has them; and which relations can be
sources.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.algebra.types import PgType
from millstream.catalog.installation import install
from millstream.errors import BadSource, NoRights
from millstream.postgres import relations
from millstream.postgres.connection import Connection, connect


def oid_of(conn: Connection, name: str) -> int:
    oid: int = conn.execute("SELECT %s::regclass::oid", (name,)).fetchall()[0][0]
    return oid


def type_of(conn: Connection, declared: str) -> PgType:
    """The type of a column declared so."""
    conn.execute(f"DROP TABLE IF EXISTS typed; CREATE TABLE typed (v {declared})")
    column = relations.table(conn, oid_of(conn, "typed")).column("v")
    assert column is not None
    return column.type


# -- tables ----------------------------------------------------------------------------------


def test_a_table_is_read_with_its_columns_in_order(conn: Connection) -> None:
    conn.execute(
        'CREATE SCHEMA "S"; CREATE TABLE "S"."T" (a int, gone int, "B b" text NOT NULL, c numeric(5,1))'
    )
    conn.execute('ALTER TABLE "S"."T" DROP COLUMN gone')
    table = relations.table(conn, oid_of(conn, '"S"."T"'))
    assert table.relation == '"S"."T"'
    assert [(c.name, c.attnum, c.not_null, str(c.type)) for c in table.columns] == [
        ("a", 1, False, "integer"),
        ("B b", 3, True, "text"),
        ("c", 4, False, "numeric(5,1)"),
    ]


def test_what_does_not_exist_is_said(conn: Connection) -> None:
    with pytest.raises(BadSource, match="4000000000"):
        relations.table(conn, 4000000000)


KEYS = {
    "primary key": ("CREATE TABLE t (a int, b int, PRIMARY KEY (b, a)); CREATE UNIQUE INDEX ON t (a)", ("b", "a")),
    "unique and not null": ("CREATE TABLE t (a int NOT NULL UNIQUE, b int)", ("a",)),
    "the smallest": (
        "CREATE TABLE t (a int NOT NULL, b int NOT NULL, c int NOT NULL, UNIQUE (a, b)); CREATE UNIQUE INDEX ON t (c)",
        ("c",),
    ),
    "without INCLUDE": ("CREATE TABLE t (a int NOT NULL, b int); CREATE UNIQUE INDEX ON t (a) INCLUDE (b)", ("a",)),
    "none": ("CREATE TABLE t (a int)", ()),
    "unique with NULLs": ("CREATE TABLE t (a int UNIQUE)", ()),
    "partial": ("CREATE TABLE t (a int NOT NULL); CREATE UNIQUE INDEX ON t (a) WHERE a > 0", ()),
    "over an expression": ("CREATE TABLE t (a int NOT NULL); CREATE UNIQUE INDEX ON t ((a + 1))", ()),
    "deferrable": ("CREATE TABLE t (a int NOT NULL UNIQUE DEFERRABLE)", ()),
    "not unique": ("CREATE TABLE t (a int NOT NULL); CREATE INDEX ON t (a)", ()),
    "partitioned": (
        "CREATE TABLE t (a int PRIMARY KEY) PARTITION BY RANGE (a); CREATE TABLE u PARTITION OF t DEFAULT",
        ("a",),
    ),
    "with children": ("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u () INHERITS (t)", ()),
}  # fmt: skip


@pytest.mark.parametrize(("ddl", "key"), KEYS.values(), ids=KEYS.keys())
def test_the_key_identifies_every_row(conn: Connection, ddl: str, key: tuple[str, ...]) -> None:
    conn.execute(ddl)
    assert relations.table(conn, oid_of(conn, "t")).key == key


def test_an_index_that_is_not_valid_is_no_key(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (a int NOT NULL); INSERT INTO t VALUES (1), (1)")
    with pytest.raises(Exception, match="could not create unique index"):
        conn.execute("CREATE UNIQUE INDEX CONCURRENTLY ON t (a)")
    assert relations.table(conn, oid_of(conn, "t")).key == ()


def test_partitions_and_children_are_found_to_any_depth(conn: Connection) -> None:
    conn.execute(
        "CREATE TABLE p (a int) PARTITION BY RANGE (a);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (a);"
        "CREATE TABLE p11 PARTITION OF p1 DEFAULT; CREATE TABLE p2 PARTITION OF p DEFAULT;"
        "CREATE TABLE a (x int); CREATE TABLE b () INHERITS (a); CREATE TABLE c () INHERITS (a, b);"
        "CREATE TEMPORARY TABLE d () INHERITS (a)"
    )
    oids = {name: oid_of(conn, name) for name in ("p", "p1", "p11", "p2", "a", "b", "c")}
    found = relations.partitions(conn, [oids["p"], oids["a"], oids["p11"]])
    assert found == {
        oids["p"]: tuple(sorted(oids[name] for name in ("p1", "p11", "p2"))),
        oids["a"]: tuple(sorted(oids[name] for name in ("b", "c"))),
        oids["p11"]: (),
    }
    assert relations.table(conn, oids["p"]).partitions == found[oids["p"]]


# -- types -----------------------------------------------------------------------------------

TYPES = {
    "int": ("integer", "int4", "base"),
    "varchar(10)": ("character varying(10)", "varchar", "base"),
    "char(3)": ("character(3)", "bpchar", "base"),
    "bit(3)": ("bit(3)", "bit", "base"),
    '"char"': ('"char"', "char", "base"),
    "timestamptz(3)": ("timestamp(3) with time zone", "timestamptz", "base"),
    "interval day": ("interval day", "interval", "base"),
    "shop.mood": ("shop.mood", "mood", "enum"),
    "shop.mood[]": ("shop.mood[]", "_mood", "array"),
    'shop."Odd Type"': ('shop."Odd Type"', "Odd Type", "composite"),
    "shop.price": ("shop.price", "numeric", "base"),
    "shop.moods": ("shop.moods", "_mood", "array"),
    "int4range": ("int4range", "int4range", "range"),
    "int4multirange": ("int4multirange", "int4multirange", "range"),
    "int2vector": ("int2vector", "int2vector", "base"),
    "text[]": ("text[]", "_text", "array"),
    "numeric(10,2)[]": ("numeric(10,2)[]", "_numeric", "array"),
}

DEFINITIONS = """
    CREATE SCHEMA shop;
    CREATE TYPE shop.mood AS ENUM ('sad', 'happy');
    CREATE TYPE shop."Odd Type" AS (a int, b text);
    CREATE TYPE shop.wrapped AS (j json);
    CREATE DOMAIN shop.amount AS numeric(12,2) CHECK (VALUE > 0);
    CREATE DOMAIN shop.price AS shop.amount;
    CREATE DOMAIN shop.moods AS shop.mood[];
"""


@pytest.mark.parametrize("search_path", ["public", "shop, public", "pg_catalog"])
def test_types_are_named_alike_under_any_search_path(conn: Connection, search_path: str) -> None:
    conn.execute(DEFINITIONS)
    columns = ", ".join(f"v{n} {declared}" for n, declared in enumerate(TYPES))
    conn.execute(f"CREATE TABLE public.typed ({columns})")
    oid = oid_of(conn, "public.typed")
    conn.execute(f"SET search_path = {search_path}")
    found = [(c.type.name, c.type.base, c.type.kind) for c in relations.table(conn, oid).columns]
    assert found == list(TYPES.values())
    conn.execute("SELECT " + ", ".join(f"NULL::{name}" for name, _, _ in found))


def test_domains_carry_what_lies_underneath(conn: Connection) -> None:
    conn.execute(DEFINITIONS)
    price, moods = type_of(conn, "shop.price"), type_of(conn, "shop.moods")
    assert (price.name, price.base, price.precision, price.scale) == (
        "shop.price",
        "numeric",
        12,
        2,
    )
    assert (moods.base, moods.kind, moods.element) == ("_mood", "array", "mood")


@pytest.mark.parametrize(
    ("declared", "precision", "scale"),
    [("numeric", None, None), ("numeric(5)", 5, 0), ("numeric(12,2)", 12, 2), ("numeric(1000,0)", 1000, 0),
     ("numeric(3,-2)", 3, -2), ("numeric(3,5)", 3, 5), ("numeric(10,2)[]", 10, 2), ("varchar(5)", None, None)],
)  # fmt: skip
def test_numeric_has_its_declared_digits(
    conn: Connection, declared: str, precision: int | None, scale: int | None
) -> None:
    found = type_of(conn, declared)
    assert (found.precision, found.scale) == (precision, scale)


COMPARABLE = {
    "int": True, "text": True, "varchar": True, "cidr": True, "jsonb": True, "tsvector": True, "uuid": True,
    "xid": True, "int4range": True, "shop.mood": True, "shop.price": True, "int[]": True, 'shop."Odd Type"': True,
    "json": False, "xml": False, "point": False, "box": False, "json[]": False, "shop.wrapped": False,
    "shop.wrapped[]": False, "circle": False, "pg_snapshot": False,
}  # fmt: skip


@pytest.mark.parametrize(("declared", "comparable"), COMPARABLE.items(), ids=COMPARABLE.keys())
def test_comparable_is_what_group_by_says(
    conn: Connection, declared: str, comparable: bool
) -> None:
    conn.execute(DEFINITIONS)
    assert type_of(conn, declared).comparable is comparable
    query = "SELECT v FROM typed GROUP BY v"
    if comparable:
        conn.execute(query)
    else:
        with pytest.raises(Exception, match="could not identify an equality operator"):
            conn.execute(query)


@pytest.mark.parametrize(
    ("declared", "collation"),
    [("int", "none"), ('text COLLATE "C"', "C"), ('text COLLATE "POSIX"', "C"), ("name", "C"),
     ('text COLLATE "ci"', "nondeterministic"), ('text COLLATE "en-x-icu"', "deterministic"),
     ("text[]", "deterministic"), ('varchar(3) COLLATE "C"', "C")],
)  # fmt: skip
def test_the_class_of_a_collation(conn: Connection, declared: str, collation: str) -> None:
    if "icu" in declared or '"ci"' in declared:
        if conn.execute(
            "SELECT count(*) FROM pg_collation WHERE collname = 'en-x-icu'"
        ).fetchall() == [(0,)]:
            pytest.skip("this server was built without ICU")
        conn.execute(
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    assert type_of(conn, declared).collation == collation


def test_a_type_alone_has_its_own_collation(conn: Connection) -> None:
    assert relations.pg_type(conn, 25, -1).collation == "deterministic"
    assert relations.pg_type(conn, 25, -1, 950).collation == "C"
    assert relations.pg_type(conn, 1043, 14) == PgType(
        1043, "character varying(10)", "varchar", collation="deterministic"
    )
    with pytest.raises(ValueError, match="unknown type"):
        relations.pg_type(conn, 4000000000)


# -- sources ---------------------------------------------------------------------------------

REFUSED = {
    "temporary": ("CREATE TEMPORARY TABLE t (a int)", "t", "temporary"),
    "unlogged": ("CREATE UNLOGGED TABLE t (a int)", "t", "unlogged"),
    "foreign": (
        "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;CREATE FOREIGN TABLE t (a int) SERVER s",
        "t",
        "foreign table",
    ),
    "materialized view": ("CREATE MATERIALIZED VIEW t AS SELECT 1", "t", "materialized view"),
    "view": ("CREATE VIEW t AS SELECT 1", "t", "view"),
    "sequence": ("CREATE SEQUENCE t", "t", "sequence"),
    "index": ("CREATE TABLE u (a int PRIMARY KEY)", "u_pkey", "not a table"),
    "system catalog": ("", "pg_class", "system catalog"),
    "information schema": ("", "information_schema.sql_features", "system catalog"),
    "ours": ("", "millstream.stream_tables", "belongs to Millstream"),
    "foreign partition": (
        "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;"
        "CREATE TABLE t (a int) PARTITION BY RANGE (a); CREATE FOREIGN TABLE f PARTITION OF t DEFAULT SERVER s",
        "t",
        'child "public"."f" cannot be captured',
    ),
    "unlogged child": (
        "CREATE TABLE t (a int); CREATE UNLOGGED TABLE u () INHERITS (t)",
        "t",
        "unlogged",
    ),
}


@pytest.mark.parametrize(("ddl", "name", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_captured_is_refused_with_the_reason(
    conn: Connection, ddl: str, name: str, reason: str
) -> None:
    install.install(conn)
    conn.execute(ddl or "SELECT 1")
    with pytest.raises(BadSource, match="cannot be a source") as raised:
        relations.check_source(conn, oid_of(conn, name))
    assert reason in raised.value.detail
    assert raised.value.hint


def test_plain_and_partitioned_tables_are_sources(conn: Connection) -> None:
    conn.execute(
        "CREATE TABLE t (a int); CREATE TABLE p (a int) PARTITION BY RANGE (a); CREATE TABLE q PARTITION OF p DEFAULT"
    )
    for name in "tpq":
        relations.check_source(conn, oid_of(conn, name))


def test_a_source_that_does_not_exist_is_refused(conn: Connection) -> None:
    with pytest.raises(BadSource):
        relations.check_source(conn, 4000000000)


@pytest.fixture
def plain(conn: Connection, database: str) -> Iterator[Connection]:
    """A connection of a role without rights, but for a schema of its own."""
    role = f"plain_{conn.info.dbname}"
    conn.execute(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA AUTHORIZATION {role}")
    with connect(database.replace("tester@", f"{role}@")) as connection:
        yield connection
    conn.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_a_table_of_another_role_is_refused_with_the_grant(
    conn: Connection, plain: Connection
) -> None:
    conn.execute(f"CREATE TABLE public.t (a int); GRANT ALL ON public.t TO {plain.info.user}")
    with pytest.raises(NoRights) as raised:
        relations.check_source(plain, oid_of(conn, "public.t"))
    assert "Only the owner" in raised.value.detail
    assert f'GRANT "tester" TO "{plain.info.user}"' in raised.value.hint


def test_a_partition_of_another_role_is_refused(conn: Connection, plain: Connection) -> None:
    plain.execute(
        "CREATE TABLE t (a int) PARTITION BY RANGE (a); CREATE TABLE u PARTITION OF t DEFAULT"
    )
    conn.execute(f"ALTER TABLE {plain.info.user}.u OWNER TO tester")
    with pytest.raises(NoRights, match='"u"'):
        relations.check_source(plain, oid_of(plain, "t"))


def test_a_table_that_its_owner_may_not_read_is_refused(plain: Connection) -> None:
    plain.execute(f"CREATE TABLE t (a int); REVOKE SELECT ON t FROM {plain.info.user}")
    with pytest.raises(NoRights, match="may not read") as raised:
        relations.check_source(plain, oid_of(plain, "t"))
    plain.execute(raised.value.hint.removeprefix("As an administrator: "))
    relations.check_source(plain, oid_of(plain, "t"))


def test_a_table_whose_rows_are_hidden_from_us_is_refused(plain: Connection) -> None:
    plain.execute("CREATE TABLE t (a int); ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    relations.check_source(plain, oid_of(plain, "t"))
    plain.execute("ALTER TABLE t FORCE ROW LEVEL SECURITY")
    with pytest.raises(BadSource) as raised:
        relations.check_source(plain, oid_of(plain, "t"))
    assert "hides some of its rows" in raised.value.detail
