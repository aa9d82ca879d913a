"""A stream table that cannot be repaired gets its error, and stops no other."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
import pytest

from millstream.client import Millstream
from millstream.errors import LockNotHad, SourceChanged
from millstream.postgres.connection import Connection
from millstream.postgres.table_locks import Patience
from millstream.scheduler import repair
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(ms: Millstream, writer: psycopg.Connection) -> psycopg.Connection:
    for name in ("t", "u"):
        writer.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v int, w int); INSERT INTO {name} VALUES (1, 1, 1)".encode()
        )
    ms.create_stream_table("a_st", "SELECT id, v FROM t", schedule="continuous")
    ms.create_stream_table("b_st", "SELECT id, v FROM u", schedule="continuous")
    return writer


def ticked(ms: Millstream) -> dict[str, str]:
    return {report.name: report.action for report in ms.tick()}


# -- sources -----------------------------------------------------------------------------------


def test_a_source_whose_capture_waits_for_a_lock_holds_up_its_readers_only(
    ms: Millstream,
    writer: psycopg.Connection,
    another: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repair, "HASTY", Patience(seconds=0.3))
    writer.execute("ALTER TABLE t DISABLE TRIGGER ALL; INSERT INTO u VALUES (2, 2, 2)")
    slow = another()
    with slow.transaction():
        slow.execute("INSERT INTO public.t VALUES (5, 5, 5)")
        assert ticked(ms) == {"b_st": "DIFFERENTIAL"}
        with pytest.raises(LockNotHad):
            ms.refresh("a_st")
    end_backoff(ms.app.conn)
    assert ticked(ms) == {"a_st": "REINITIALIZE", "b_st": "NO_DATA"}
    oracle.check(ms.app.conn, "SELECT id, v FROM t", "a_st")


def test_a_source_that_is_locked_while_its_query_is_planned_holds_up_its_readers_only(
    ms: Millstream,
    writer: psycopg.Connection,
    another: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millstream.service.app.PLAN_PATIENCE", 0.3)
    for name in ("a_st", "b_st"):
        ms.app.forget(ms.app.named(name).id)
    holder = another()
    with holder.transaction():
        holder.execute("LOCK TABLE public.t IN ACCESS EXCLUSIVE MODE")
        assert ticked(ms) == {"b_st": "NO_DATA"}
    end_backoff(ms.app.conn)
    assert set(ticked(ms)) == {"a_st", "b_st"}
    assert ms.status()[0].consecutive_errors == 0


def test_a_source_that_was_dropped_holds_up_its_readers_only(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("DROP TABLE t; INSERT INTO u VALUES (2, 2, 2)")
    assert ticked(ms) == {"b_st": "DIFFERENTIAL"}
    writer.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, w int); INSERT INTO t VALUES (7, 7, 7)"
    )
    end_backoff(ms.app.conn)
    assert ticked(ms) == {"a_st": "REINITIALIZE", "b_st": "NO_DATA"}
    oracle.check(ms.app.conn, "SELECT id, v FROM t", "a_st")


def test_a_column_that_a_reader_does_not_use_is_no_trouble_for_it(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    ms.create_stream_table("c_st", "SELECT id, w FROM t", schedule="continuous")
    writer.execute("ALTER TABLE t DROP COLUMN w; INSERT INTO t VALUES (2, 2)")
    for _ in range(2):
        assert set(ticked(ms)) == {"a_st", "b_st"}
        oracle.check(ms.app.conn, "SELECT id, v FROM t", "a_st")
    with pytest.raises(SourceChanged):
        ms.refresh("c_st")
    writer.execute("INSERT INTO t VALUES (3, 3)")
    end_backoff(ms.app.conn)
    assert ticked(ms)["a_st"] == "DIFFERENTIAL"


# -- stream tables -----------------------------------------------------------------------------


def test_a_stream_table_that_is_locked_holds_up_itself_only_and_not_for_long(
    ms: Millstream,
    writer: psycopg.Connection,
    another: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millstream.refresh.source_locks.WRITE_TIMEOUT", "300ms")
    writer.execute("INSERT INTO t VALUES (2, 2, 2); INSERT INTO u VALUES (2, 2, 2)")
    holder = another()
    with holder.transaction():
        holder.execute("LOCK TABLE public.a_st IN SHARE MODE")
        started = time.monotonic()
        assert ticked(ms) == {"b_st": "DIFFERENTIAL"}
        assert time.monotonic() - started < 10
        with pytest.raises(LockNotHad, match="a_st"):
            ms.refresh("a_st")
    end_backoff(ms.app.conn)
    assert ticked(ms)["a_st"] == "DIFFERENTIAL"
