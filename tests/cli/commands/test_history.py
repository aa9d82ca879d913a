"""`millstream history`: one line for each refresh."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

from tests.cli.conftest import AT, Line

from millstream.cli.exit_codes import Exit


def test_history_prints_what_was_done_and_why(line: Line) -> None:
    entry = SimpleNamespace(
        started_at=AT, finished_at=AT + timedelta(milliseconds=120), action="DIFFERENTIAL", reason="changes",
        status="COMPLETED", initiated_by="SCHEDULER", rows_read=5, rows_inserted=1, rows_updated=0, rows_deleted=0,
        spark_jobs=1,
    )  # fmt: skip
    line.double.answers["history"] = [entry]
    line.double.answers["status"] = [
        SimpleNamespace(name="totals", schema="public", no_data_refreshes=1234),
        SimpleNamespace(name="others", schema="public", no_data_refreshes=5),
    ]
    out = line("history", "totals", "-n", "3").out
    assert "1,234 refreshes by schedule found no change" in out
    assert line.double.called("history") == [(("totals",), {"n": 3})]
    assert "120 ms" in out
    assert line("history", "totals", "-n", "0").code == Exit.USAGE
