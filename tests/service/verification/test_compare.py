"""Stream tables are compared with their queries by text, and by value where PostgreSQL chooses
among equal values.
"""

from __future__ import annotations

from psycopg import sql

from millstream.postgres.connection import Connection
from millstream.service.verification import compare

EQUAL = ("1 day", "24 hours", "23:59:60", "2 days -24:00:00", "1 mon -29 days")


OTHERS = (
    "1 mon",
    "30 days",
    "720:00:00",
    "-1 day",
    "-24:00:00",
    "0",
    "1 year",
    "360 days",
    "00:00:00.000001",
)


def test_intervals_are_equal_by_value_exactly_where_postgresql_says_so(conn: Connection) -> None:
    listed = ", ".join(f"('{value}'::interval)" for value in (*EQUAL, *OTHERS))
    one, other = (
        compare._LENGTH.format(x=sql.Identifier(alias, "v")).as_string() for alias in "ab"
    )
    pairs = conn.execute(
        f"SELECT a.v::text, b.v::text FROM (VALUES {listed}) AS a (v), (VALUES {listed}) AS b (v) "
        f"WHERE (a.v = b.v) <> ({one} = {other})".encode()
    ).fetchall()
    assert pairs == []
