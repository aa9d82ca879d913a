"""The cut: one transaction, and how far a stream table has come that was refreshed in it."""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream
from millstream.testing import oracle

pytestmark = pytest.mark.spark


def test_a_foreign_key_on_a_stream_table_cascades_once(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """What a refresh deletes by a cascade is in the buffer of the cut's own transaction: it was
    counted twice.
    """
    writer.execute(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY, p int)"
    )
    writer.execute("INSERT INTO t VALUES (1), (2), (3)")
    ms.create_stream_table("a_st", "SELECT id FROM t", schedule="continuous")
    ms.create_stream_table("b_st", "SELECT count(*) AS n FROM c", schedule="continuous")
    writer.execute("INSERT INTO c VALUES (1, 1), (2, 2), (3, 3)")
    writer.execute("ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES a_st (id) ON DELETE CASCADE")
    writer.execute("DELETE FROM t WHERE id = 1; INSERT INTO c VALUES (4, 2)")
    for _ in range(3):
        ms.tick()
    oracle.check(ms.app.conn, "SELECT count(*) AS n FROM c", "b_st")
