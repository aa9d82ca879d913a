"""Failed refreshes are recorded, and a stream table that fails again and again is suspended."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from millstream.client import Millstream
from millstream.errors import RefreshFailed
from millstream.refresh.evaluate import Evaluation
from millstream.testing import oracle

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(ms: Millstream, database: str) -> Iterator[psycopg.Connection]:
    """Two sources, t and u, with a stream table over each: a_st and b_st."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id int PRIMARY KEY, v int, w int); INSERT INTO t VALUES (1, 1, 1)")
        conn.execute("CREATE TABLE u (id int PRIMARY KEY, v int, w int); INSERT INTO u VALUES (1, 1, 1)")
        ms.create_stream_table("a_st", "SELECT id, v FROM t", schedule="continuous")
        ms.create_stream_table("b_st", "SELECT id, v FROM u", schedule="continuous")
        yield conn


def ticked(ms: Millstream) -> dict[str, str]:
    return {report.name: report.action for report in ms.tick()}


def test_an_error_of_a_library_is_ours_with_its_cause_and_is_recorded(
    ms: Millstream, writer: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.execute("INSERT INTO t VALUES (2, 2, 2)")
    with monkeypatch.context() as patch:
        patch.setattr(Evaluation, "changes", lambda *_: pa.array(["x"]).cast(pa.int32()))
        with pytest.raises(RefreshFailed, match="a_st") as caught:
            ms.refresh("a_st")
        assert isinstance(caught.value.__cause__, pa.ArrowInvalid)
        assert "ArrowInvalid" in caught.value.detail
    entry = ms.history("a_st")[0]
    assert (entry.status, entry.initiated_by, entry.reason) == ("FAILED", "MANUAL", "MS402")
    assert ms.refresh("a_st").action == "DIFFERENTIAL"


def test_a_table_that_fails_again_and_again_is_suspended_until_it_is_made_active(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("ALTER TABLE t RENAME COLUMN v TO x")
    for _ in range(3):
        assert ticked(ms) == {"b_st": "NO_DATA"}
    told = ms.status()[0]
    assert (told.status, told.consecutive_errors) == ("SUSPENDED", 3)
    writer.execute("ALTER TABLE t RENAME COLUMN x TO v; INSERT INTO t VALUES (2, 2, 2)")
    assert ticked(ms) == {"b_st": "NO_DATA"}
    failed = [entry for entry in ms.history("a_st") if entry.status == "FAILED"]
    assert [entry.initiated_by for entry in failed] == ["SCHEDULER"] * 3
    ms.alter_stream_table("a_st", status="ACTIVE")
    assert "a_st" in ticked(ms)
    oracle.check(ms.app.conn, "SELECT id, v FROM t", "a_st")
