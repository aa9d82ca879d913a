"""Pre-flight checks: what keeps a stream table from being refreshed is told."""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream
from millstream.errors import TargetMoved

pytestmark = pytest.mark.spark


def test_a_dropped_stream_table_is_an_error(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute("CREATE TABLE o (id int PRIMARY KEY, v int); INSERT INTO o VALUES (1, 1)")
    ms.create_stream_table("x", "SELECT id, v FROM o", schedule="1h")
    writer.execute("DROP TABLE x; INSERT INTO o VALUES (2, 2)")
    with pytest.raises(TargetMoved, match="dropped"):
        ms.refresh("x")
