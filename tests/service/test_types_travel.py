"""Every type travels through buffer, lookup, Spark and apply and comes back bit for bit.

One table holds all types, one column each, with their odd values: infinities, BC, year 10000, NaN,
'24:00:00', bounds of arrays, padding, jsonb null. It is carried (with a key and as a bag), and each
type that can be compared is joined and grouped by and asked for its extremes.
"""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.testing import oracle

pytestmark = pytest.mark.spark

# type -> odd values, as SQL
TYPES: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "smallint": ("-32768", "32767", "0"),
    "integer": ("-2147483648", "2147483647", "7"),
    "bigint": ("-9223372036854775808", "9223372036854775807", "12"),
    "numeric(12,2)": ("0.00", "-9999999999.99", "1.50"),
    "numeric": ("1.0", "1.00", "-0.000000000000000001", "99999999999999999999"),
    "real": ("'NaN'", "'-Infinity'", "1.1", "'-0'"),
    "double precision": ("'NaN'", "'Infinity'", "0.1", "1e-300", "'-0'"),
    "text": ("''", "'NULL'", "E'a\\nb\"c,d\\\\'", "'é ☃ 𝄞'", "'\\.'"),
    'text COLLATE "C"': ("'a'", "'B'", "'ä'"),
    "varchar(20)": ("'x '", "' x'"),
    "char(5)": ("'ab'", "''", "'ab   '"),
    "bpchar": ("'ab  '", "''", "' a '"),
    "date": ("'infinity'", "'-infinity'", "'0044-03-15 BC'", "'12000-01-01'", "'2024-02-29'"),
    "time": ("'24:00:00'", "'00:00:00'", "'12:34:56.789012'"),
    "timetz": ("'12:00:00+02'", "'24:00:00-05'"),
    "timestamp": ("'infinity'", "'0001-01-01 BC'", "'294276-12-31 23:59:59.999999'", "'2000-01-01 00:00:00.000001'"),
    "timestamptz": ("'-infinity'", "'4713-01-01 BC'", "'2024-06-01 12:00:00.5-04'", "'1999-12-31 23:59:59.999999Z'"),
    "interval": ("'1 mon -1 day +01:02:03.000004'", "'-178000000 years'", "'24 hours'", "'1 day'"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
    "bytea": ("'\\x00ff'", "''"),
    "json": ("'null'", "'{\"b\": 1,  \"a\": 2}'"),
    "jsonb": ("'null'", "'{\"a\": 1.0}'", "'{\"a\": 1.00}'", "'[]'"),
    "int[]": ("'{1,NULL,3}'", "'[2:3]={4,5}'", "'{{1,2},{3,4}}'", "'{}'"),
    "text[]": ("'{\"\",NULL,\"NULL\",\"a,b\"}'",),
    "mood": ("'sad'", "'happy'", "'a b'"),
    "posint": ("1", "42"),
    "pair": ("ROW(1, 'x')::pair", "ROW(NULL, '')::pair"),
    "inet": ("'10.0.0.1'", "'10.0.0.1/8'", "'::1'"),
    "cidr": ("'10.0.0.0/8'",),
    "macaddr": ("'08:00:2b:01:02:03'",),
    "int4range": ("'[1,5)'", "'empty'", "'(,)'"),
    "tstzmultirange": ("'{[2024-01-01, infinity)}'", "'{}'"),
    "bit(3)": ("B'101'", "B'000'"),
    "bit varying": ("B''", "B'1'"),
    "point": ("'(1,2.5)'",),
    "money": ("12.34::numeric::money",),
    "tsvector": ("'a fat cat'::tsvector",),
    "pg_lsn": ("'16/B374D848'",),
}  # fmt: skip

# Spark's equality is PostgreSQL's: they can be joined and grouped by.
KEYS = [
    "boolean", "smallint", "integer", "bigint", "numeric(12,2)", "numeric", "real", "double precision", "text",
    'text COLLATE "C"', "varchar(20)", "char(5)", "bpchar", "date", "time", "timetz", "timestamp", "timestamptz",
    "uuid", "bytea", "int[]", "text[]", "mood", "posint", "inet", "cidr", "macaddr", "bit(3)", "bit varying", "pg_lsn",
    "jsonb", "interval",
]  # fmt: skip
# PostgreSQL has min() and max() of them.
EXTREMES = [
    "smallint", "integer", "bigint", "numeric(12,2)", "numeric", "real", "double precision", "text",
    'text COLLATE "C"', "varchar(20)", "char(5)", "bpchar", "date", "time", "timetz", "timestamp", "timestamptz",
    "interval",
    "int[]", "text[]", "mood", "posint", "inet", "money", "pg_lsn",
]  # fmt: skip

NAMES = {type_: f"c{number}" for number, type_ in enumerate(TYPES)}


@pytest.fixture
def writer(ms: Millstream, writer: psycopg.Connection) -> psycopg.Connection:
    """A table of all types, and a connection that writes to it."""
    writer.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'happy', 'a b'); CREATE DOMAIN posint AS int CHECK (VALUE > 0)"
    )
    writer.execute("CREATE TYPE pair AS (a int, b text)")
    columns = ", ".join(f"{NAMES[type_]} {type_}" for type_ in TYPES)
    writer.execute(f"CREATE TABLE t (id int PRIMARY KEY, grp int, {columns})".encode())
    for number in range(6):
        insert(writer, number)
    ms.app.witness = witness
    return writer


def insert(conn: psycopg.Connection, number: int) -> None:
    """A row with the number-th odd value of each type; NULL where it has fewer."""
    values = [odd[number] if number < len(odd) else "NULL" for odd in TYPES.values()]
    id_ = "(SELECT coalesce(max(id), 0) + 1 FROM t)"
    conn.execute(f"INSERT INTO t VALUES ({id_}, {number % 2}, {', '.join(values)})".encode())


def witness(now: Cut, job: Job, report: RefreshReport) -> None:
    oracle.check(now.conn, job.table.query, job.table.qualified)


def rounds(ms: Millstream, writer: psycopg.Connection, name: str) -> None:
    """Change the table in several ways; each refresh is differential, and compared by the witness."""
    for number in range(5):
        insert(writer, number)
    assert ms.refresh(name).action == "DIFFERENTIAL"
    writer.execute("UPDATE t SET grp = 1 - grp WHERE id % 2 = 0")
    writer.execute("DELETE FROM t WHERE id % 3 = 0")
    insert(writer, 0)
    assert ms.refresh(name).action == "DIFFERENTIAL"
    assert ms.refresh(name, full=True).rows_updated == 0


@pytest.mark.parametrize(
    "query", ["SELECT * FROM t", f"SELECT {', '.join(NAMES.values())} FROM t WHERE grp = 0"]
)
def test_every_type_is_read_and_written_exactly(
    ms: Millstream, writer: psycopg.Connection, query: str
) -> None:
    ms.create_stream_table("carried", query)
    rounds(ms, writer, "carried")


def test_every_type_passes_through_a_join_exactly(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    columns = ", ".join(f"a.{name} AS a{name}, b.{name} AS b{name}" for name in NAMES.values())
    ms.create_stream_table(
        "carried", f"SELECT a.id, {columns} FROM t a JOIN t b ON a.id = b.id + 1"
    )
    rounds(ms, writer, "carried")


def test_every_type_that_is_compared_is_joined_and_grouped_by(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    for type_ in KEYS:
        name = NAMES[type_]
        query = (
            f"SELECT a.{name}, count(*) AS n, min(b.id) AS first "
            f"FROM t a JOIN t b ON a.{name} = b.{name} GROUP BY a.{name}"
        )
        ms.create_stream_table(f"by_{name}", query, initialize=False)
    assert {report.action for report in ms.refresh_all()} == {"FULL"}
    for number in range(5):
        insert(writer, number)
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
    writer.execute("DELETE FROM t WHERE id % 3 = 1")
    insert(writer, 0)
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}


def test_every_type_that_has_an_order_gives_its_extremes(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    extremes = ", ".join(
        f"min({NAMES[t]}) AS least_{NAMES[t]}, max({NAMES[t]}) AS most_{NAMES[t]}" for t in EXTREMES
    )
    ms.create_stream_table("extremes", f"SELECT grp, {extremes} FROM t GROUP BY grp")
    rounds(ms, writer, "extremes")
