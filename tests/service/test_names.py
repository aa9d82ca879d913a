"""No name of the user's can meet one of ours: columns, aliases, tables, schemas, in any spelling."""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream
from millstream.errors import Unsupported
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.testing import oracle

pytestmark = pytest.mark.spark

# Words that our own SQL uses for columns and aliases.
OURS = [
    "op", "tid", "keep", "total", "h", "nth", "net", "n", "__net", "row_id", "o0", "key_o0", "k0", "k1", "a0", "x0",
    "c0", "s", "g", "d", "t", "o", "x", "y", "r", "i", "w", "id", "xid", "action", "absolute", "n0", "c1", "t2",
    "x2_in", "ordinal", "new", "stored", "expected", "actual", "missing", "extra", "__before", "__after", "__one",
    "count", "sum",
]  # fmt: skip
ODD = [
    'a"b',
    "a.b",
    "a b",
    "A",
    "é☃",
    "select",
    "100%",
    "%s",
    "{x}",
    "it's",
    "x" * 63,
    "\\",
    "$1",
    "q.c",
]


@pytest.fixture
def writer(ms: Millstream, writer: psycopg.Connection) -> psycopg.Connection:
    ms.app.witness = witness
    return writer


def witness(now: Cut, job: Job, report: RefreshReport) -> None:
    oracle.check(now.conn, job.table.query, job.table.qualified)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def test_columns_named_like_ours_are_the_users_own(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    columns = ", ".join(f"{quoted(name)} int" for name in OURS if name != "id")
    writer.execute(f"CREATE TABLE words (id int PRIMARY KEY, {columns})".encode())
    values = ", ".join("i" for name in OURS)
    writer.execute(f"INSERT INTO words SELECT {values} FROM generate_series(1, 20) AS i".encode())
    listed = ", ".join(quoted(name) for name in OURS if name != "id")
    ms.create_stream_table("keyed", f"SELECT id, {listed} FROM words", initialize=False)
    ms.create_stream_table("bag", f"SELECT {listed} FROM words WHERE op > 3", initialize=False)
    ms.create_stream_table(
        "groups", f"SELECT {listed}, count(*) AS __n FROM words GROUP BY {listed}", initialize=False
    )
    sums = ", ".join(f"sum({quoted(name)}) AS {quoted(name)}" for name in OURS)
    ms.create_stream_table("sums", f"SELECT {sums} FROM words", initialize=False)
    ms.refresh_all()
    writer.execute("UPDATE words SET op = op + 1, total = 7 WHERE id < 5")
    writer.execute("DELETE FROM words WHERE id > 18")
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}


def test_aliases_named_like_ours_are_the_users_own(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(
        "CREATE TABLE p (id int PRIMARY KEY, v int); CREATE TABLE q (id int PRIMARY KEY, p int, v int)"
    )
    writer.execute("INSERT INTO p SELECT i, i FROM generate_series(1, 9) AS i")
    writer.execute("INSERT INTO q SELECT id, id % 5, id FROM p")
    for number, (one, other) in enumerate(
        [("k", "w"), ("s", "g"), ("d", "n"), ("t", "o"), ("x", "b"), ("i0", "i1")]
    ):
        tables = f"p AS {one} JOIN q AS {other} ON {one}.id = {other}.p"
        query = f"SELECT {one}.v, max({other}.v) AS m FROM {tables} GROUP BY {one}.v"
        ms.create_stream_table(f"st{number}", query, initialize=False)
    ms.refresh_all()
    writer.execute("UPDATE p SET v = v + 1; DELETE FROM q WHERE id > 7")
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}


def test_names_of_any_spelling_travel(ms: Millstream, writer: psycopg.Connection) -> None:
    for number, name in enumerate(ODD):
        schema, table = quoted(f"s {name}"[:40]), quoted(name)
        writer.execute(f"CREATE SCHEMA {schema}".encode())
        writer.execute(f"CREATE TABLE {schema}.{table} ({table} int PRIMARY KEY, g text)".encode())
        writer.execute(f"INSERT INTO {schema}.{table} VALUES (1, 'a'), (2, 'b%s')".encode())
        query = f"SELECT {table}.{table}, g || '%s' AS {quoted(name[:60] + 'é')} FROM {schema}.{table} WHERE g <> 'x%'"
        ms.create_stream_table(
            f"{schema}.{quoted(f'st{number}{name}'[:50])}", query, initialize=False
        )
    ms.refresh_all()
    for name in ODD:
        schema, table = quoted(f"s {name}"[:40]), quoted(name)
        writer.execute(f"UPDATE {schema}.{table} SET g = 'c' WHERE {table} = 1".encode())
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}


def test_a_reserved_name_is_refused(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE plain (id int); CREATE TABLE marked (id int, __ms_action text)")
    for query in ("SELECT id AS __ms_row_id FROM plain", "SELECT id FROM marked"):
        with pytest.raises(Unsupported, match="__ms_"):
            ms.create_stream_table("st", query)
