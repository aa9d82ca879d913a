"""The data of TPC-H."""

from __future__ import annotations

from millstream.postgres.connection import Connection
from millstream.testing.tpch.load import load

SCALE = 0.01


def test_the_tables_have_the_sizes_of_the_specification(conn: Connection) -> None:
    made = load(conn, SCALE)
    assert made == {
        "region": 5, "nation": 25, "supplier": 100, "customer": 1500, "part": 2000, "partsupp": 8000,
        "orders": 15_000, "lineitem": 60_175,
    }  # fmt: skip
