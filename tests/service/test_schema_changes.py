"""DDL on sources: what can be followed is followed, and every stream table is what PostgreSQL says of its query."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import millstream
from millstream import Millstream
from millstream.testing import oracle

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, g int, v int, w varchar(10));
    CREATE TABLE names (g int PRIMARY KEY, name text);
    INSERT INTO t SELECT i, i % 3, i, 'w' || i FROM generate_series(1, 9) AS i;
    INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (2, 'two')
"""
CHANGE = (
    "UPDATE {t} SET {g} = 1 WHERE {id} = 3; DELETE FROM {t} WHERE {id} = 4; INSERT INTO {t} VALUES ({n}, 2, 7, 'x')"
)


@pytest.fixture
def writer(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
        yield conn


def change(writer: psycopg.Connection, n: int, t: str = "t", id: str = "id", g: str = "g") -> None:
    writer.execute(CHANGE.format(t=t, id=id, g=g, n=n).encode())


def make(ms: Millstream) -> None:
    ms.create_stream_table("totals", "SELECT g, sum(v) AS total, count(*) AS n FROM t GROUP BY g")
    ms.create_stream_table("named", "SELECT t.id, names.name, t.v FROM t JOIN names ON names.g = t.g")
    ms.create_stream_table("above", "SELECT count(*) AS groups, sum(total) AS total FROM totals")


def actions(ms: Millstream) -> dict[str, str]:
    """Refresh all, prove all right, return what was done."""
    found: dict[str, str] = {report.name: report.action for report in ms.refresh_all()}
    assert [name for name in found if not ms.verify(name).ok] == []
    return found


def check(ms: Millstream, t: str = "t", g: str = "g", v: str = "v", id: str = "id") -> None:
    oracle.check(ms.app.conn, f"SELECT {g} AS g, sum({v}) AS total, count(*) AS n FROM {t} GROUP BY {g}", "totals")
    named = f"SELECT x.{id} AS id, names.name, x.{v} AS v FROM {t} AS x JOIN names ON names.g = x.{g}"
    oracle.check(ms.app.conn, named, "named")


@pytest.mark.parametrize("restarted", [False, True], ids=["same process", "new process"])
def test_renamed_columns_and_tables_are_followed(
    ms: Millstream, writer: psycopg.Connection, database: str, restarted: bool
) -> None:
    """A renamed column of a source was an error until the stream table was created again."""
    make(ms)
    change(writer, 20)
    writer.execute("ALTER TABLE t RENAME g TO v2; ALTER TABLE t RENAME v TO g; ALTER TABLE t RENAME id TO key")
    if not restarted:
        change(writer, 21, id="key", g="v2")
    with millstream.connect(database, spark=ms.app.engine().spark) as other:
        one = other if restarted else ms
        assert set(actions(one).values()) <= {"REINITIALIZE", "DIFFERENTIAL"}
        check(one, g="v2", v="g", id="key")
        writer.execute('CREATE SCHEMA aside; ALTER TABLE t RENAME TO "T"; ALTER TABLE "T" SET SCHEMA aside')
        assert set(actions(one).values()) <= {"REINITIALIZE", "NO_DATA"}
        change(writer, 22, 'aside."T"', "key", "v2")
        assert set(actions(one).values()) == {"DIFFERENTIAL"}
        check(one, t='aside."T"', g="v2", v="g", id="key")
        assert [found for found in one.health() if not found.ok] == []
