"""Two tables, three stream tables over them, and a change: what tests of schema changes begin with."""

from __future__ import annotations

import psycopg

from millstream import Millstream
from millstream.testing import oracle

TOTALS = "SELECT g, sum(v) AS total, count(*) AS n FROM t GROUP BY g"

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, g int, v int, w varchar(10));
    CREATE TABLE names (g int PRIMARY KEY, name text);
    INSERT INTO t SELECT i, i % 3, i, 'w' || i FROM generate_series(1, 9) AS i;
    INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (2, 'two')
"""

CHANGE = (
    "UPDATE {t} SET {g} = 1 WHERE {id} = 3; DELETE FROM {t} WHERE "
    "{id} = 4; INSERT INTO {t} VALUES ({n}, 2, 7, 'x')"
)


def change(writer: psycopg.Connection, n: int, t: str = "t", id: str = "id", g: str = "g") -> None:
    writer.execute(CHANGE.format(t=t, id=id, g=g, n=n).encode())


def make(ms: Millstream) -> None:
    ms.create_stream_table("totals", TOTALS)
    ms.create_stream_table(
        "named", "SELECT t.id, names.name, t.v FROM t JOIN names ON names.g = t.g"
    )
    ms.create_stream_table("above", "SELECT count(*) AS groups, sum(total) AS total FROM totals")


def actions(ms: Millstream) -> dict[str, str]:
    """Refresh all, prove all right, return what was done."""
    found: dict[str, str] = {report.name: report.action for report in ms.refresh_all()}
    assert [name for name in found if not ms.verify(name).ok] == []
    return found


def check(ms: Millstream, t: str = "t", g: str = "g", v: str = "v", id: str = "id") -> None:
    oracle.check(
        ms.app.conn,
        f"SELECT {g} AS g, sum({v}) AS total, count(*) AS n FROM {t} GROUP BY {g}",
        "totals",
    )
    named = (
        f"SELECT x.{id} AS id, names.name, x.{v} AS v FROM {t} AS x JOIN names ON names.g = x.{g}"
    )
    oracle.check(ms.app.conn, named, "named")
