"""One query of each kind of block: the server takes each, and each is planned as what it is called."""

from __future__ import annotations

from millstream.postgres.connection import Connection
from millstream.testing.kinds import KINDS, make_table


def test_every_query_is_one_over_the_table_that_is_made(conn: Connection) -> None:
    with conn.transaction():
        conn.execute("SET LOCAL search_path = public")
        make_table(conn, "t7")
        for query in KINDS.values():
            assert conn.execute(query.format(t="t7").encode()).fetchall() != []
