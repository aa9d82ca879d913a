"""The shop of the demo: it opens, it sells, it changes its mind, and it says what went wrong."""

from __future__ import annotations

import time

import psycopg
import pytest

from millstream.bundled.server import embedded
from millstream.bundled.shop import EVENTS, SQL, Size, Traffic, open_shop, rows_by_table
from millstream.postgres.connection import connect

SMALL = Size(customers=20, products=10, orders=100)


def test_the_shop_sells_and_rolls_back_until_it_is_stopped() -> None:
    with embedded() as server, connect(server.dsn) as conn:
        open_shop(conn, SMALL)
        before = rows_by_table(conn)
        assert (before["customers"], before["products"], before["orders"]) == (20, 10, 100)
        traffic = Traffic(server.dsn, SMALL, rate=500, seed=1)
        traffic.start()
        time.sleep(1.5)
        traffic.stop()
        stopped = traffic.count
        assert stopped.committed > 20
        assert stopped.rolled_back > 0
        assert stopped.rows > stopped.committed
        assert rows_by_table(conn) != before


def test_trouble_of_the_writer_is_raised_where_it_is_stopped() -> None:
    with embedded() as server, connect(server.dsn) as conn:
        open_shop(conn, SMALL)
        conn.execute("DROP TABLE order_lines")
        broken = Traffic(server.dsn, SMALL, rate=500, seed=1)
        broken.start()
        time.sleep(0.5)
        with pytest.raises(psycopg.errors.UndefinedTable):
            broken.stop()


def test_every_event_has_its_statement() -> None:
    assert set(EVENTS) <= set(SQL)
