"""A scan by Spark's tasks reads the cut's snapshot, whatever is committed between the cut and the
scan.
"""

from __future__ import annotations

import pytest

from millstream.client import Millstream
from millstream.postgres.connection import Connection
from millstream.refresh import evaluate
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.testing import oracle

QUERY = "SELECT mod(n, 7) AS part, count(*) AS rows, sum(n) AS total FROM wide GROUP BY mod(n, 7)"
# More than the driver reads by itself.
WIDE = (
    "CREATE TABLE wide AS SELECT n, repeat('x', 500) AS padding FROM generate_series(1, 20000) AS n"
)
MEANWHILE = (
    "UPDATE wide SET n = n + 1 WHERE mod(n, 3) = 0",
    "DELETE FROM wide WHERE mod(n, 5) = 0",
    "INSERT INTO wide SELECT n, repeat('y', 500) FROM generate_series(1, 2000) AS n",
)


@pytest.mark.spark
def test_what_is_committed_after_the_cut_is_not_seen_by_the_scan(
    ms: Millstream, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn.execute(WIDE)
    ms.create_stream_table("parts", QUERY)
    paths = list[str]()

    def write(point: str) -> None:
        if point == "demand_read":
            for statement in MEANWHILE:
                conn.execute(statement)

    def compare(now: Cut, job: Job, report: RefreshReport) -> None:
        paths.extend(one.path for one in report.inputs)
        oracle.check(now.conn, QUERY, "parts")

    ms.app.witness = compare
    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "failpoint", write)
        ms.refresh("parts", full=True)
    assert paths == ["scan"]
    # What came meanwhile is in the buffer, and comes now.
    assert ms.refresh("parts").rows_updated == 7
    assert ms.refresh("parts").action == "NO_DATA"
