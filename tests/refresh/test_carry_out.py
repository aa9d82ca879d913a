"""Carrying out a decision: only the stream table's own table is written to."""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream
from millstream.errors import TargetMoved
from millstream.testing import oracle

pytestmark = pytest.mark.spark


def test_a_table_that_has_the_name_by_now_is_left_alone(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """What is written to goes by the oid, and not by the name alone."""
    writer.execute(
        "CREATE TABLE o (id int PRIMARY KEY, v int); INSERT INTO o VALUES (1, 1), (2, 2)"
    )
    ms.create_stream_table("x", "SELECT id, v FROM o", schedule="1h")
    writer.execute("ALTER TABLE x RENAME TO x_old; CREATE TABLE x (id int PRIMARY KEY, v int)")
    writer.execute(
        "CREATE UNIQUE INDEX ON x (id) NULLS NOT DISTINCT; INSERT INTO x VALUES (99, 99)"
    )
    for change, full in (
        ("SELECT 1", False),
        ("INSERT INTO o VALUES (3, 3)", False),
        ("SELECT 1", True),
    ):
        writer.execute(change.encode())
        with pytest.raises(TargetMoved, match="renamed"):
            ms.refresh("x", full=full)
        assert writer.execute("SELECT * FROM x").fetchall() == [(99, 99)]
    writer.execute("DROP TABLE x; ALTER TABLE x_old RENAME TO x")
    assert ms.refresh("x").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, "SELECT id, v FROM o", "x")
