"""What a session of ours is like, whatever role and database say."""

from __future__ import annotations

import psycopg
import pytest

from millstream.store.connection import session


@pytest.mark.parametrize(("given", "ours"), [("4", "1.1"), ("1.1", "1.1"), ("1", "1")])
def test_pages_in_any_order_cost_little_more_than_in_turn(database: str, given: str, ours: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"ALTER DATABASE {conn.info.dbname} SET random_page_cost = {given}".encode())
    with session(database) as conn:
        assert conn.execute("SHOW random_page_cost").fetchone() == (ours,)
