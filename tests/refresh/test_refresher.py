"""A refresh that fails leaves nothing behind, and the next one goes on from the same frontier."""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream
from millstream.errors import RefreshFailed
from millstream.testing import oracle

pytestmark = pytest.mark.spark


def test_a_row_that_fails_and_goes_is_no_trouble_any_more(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(
        "CREATE TABLE d (id int PRIMARY KEY, v int); INSERT INTO d VALUES (1, 1), (2, 0)"
    )
    queries = {
        "rows": "SELECT id, 10 / v AS q FROM d WHERE id <> 2",
        "groups": "SELECT count(*) AS n FROM d WHERE id <> 2 AND 10 / v > 1",
    }
    for name, query in queries.items():
        ms.create_stream_table(name, query, schedule="1h", refresh_mode="DIFFERENTIAL")
    writer.execute("INSERT INTO d VALUES (3, 0)")
    for name in queries:
        with pytest.raises(RefreshFailed, match="division by zero"):
            ms.refresh(name)
    writer.execute("UPDATE d SET v = 5 WHERE id = 3; INSERT INTO d VALUES (4, 4)")
    for name, query in queries.items():
        assert ms.refresh(name).action == "DIFFERENTIAL"
        oracle.check(ms.app.conn, query, name)
