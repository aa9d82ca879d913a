"""Creating a stream table among writers, against a commit, and without getting to the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream.capture.trigger import triggers
from millstream.catalog.sources import Source
from millstream.client import Millstream
from millstream.errors import MillstreamError
from millstream.postgres.connection import Connection
from millstream.refresh import cut, evaluate
from millstream.testing.writers import SHORT, VIEWS, Writers

if TYPE_CHECKING:
    from tests.concurrency.conftest import Judge

Another = Callable[[], Connection]
Found = list[tuple[object, ...]]


@pytest.mark.spark
def test_tables_created_while_writers_work_are_exact_from_their_first_cut(
    ms: Millstream, judge: Judge, database: str
) -> None:
    with Writers(database, seed=11, count=8, truncate_every=0, paces=SHORT) as writers:
        for _ in range(2):
            for name, query in VIEWS.items():
                ms.create_stream_table(name, query)
                ms.refresh(name)
            ms.refresh_all()
            for name in VIEWS:
                ms.drop_stream_table(name)
    print(
        f"\n{judge}; {writers.done['committed']} committed, {writers.done['commit prepared']} in two phases"
    )
    assert not judge.wrong, "\n".join(map(str, judge.wrong))


# -- against a commit (pg_ivm's issue 104: rows committed while the view was being made were lost)
# ------------

ENDS = ("COMMIT", "ROLLBACK", "PREPARE TRANSACTION 'late'; COMMIT PREPARED 'late'")


@pytest.mark.spark
@pytest.mark.parametrize("end", ENDS)
def test_a_transaction_that_wrote_before_the_create_and_ends_during_it_is_counted_once(
    ms: Millstream, judge: Judge, another: Another, end: str
) -> None:
    late = another()
    late.execute("BEGIN")
    late.execute("INSERT INTO visits VALUES ('page 1', 1), ('page 1', 1)")
    late.execute("DELETE FROM visits WHERE page = 'page 2'")

    def finish() -> None:
        time.sleep(0.5)
        for statement in end.split("; "):
            late.execute(statement.encode())
            time.sleep(0.5)

    thread = Thread(target=finish)
    thread.start()
    ms.create_stream_table("visited", VIEWS["visited"])
    thread.join()
    ms.refresh("visited")
    assert not judge.wrong


@pytest.mark.spark
def test_a_transaction_that_began_before_the_create_and_writes_after_it_is_captured(
    ms: Millstream, judge: Judge, another: Another
) -> None:
    old, older = another(), another()
    old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.execute("SELECT count(*) FROM visits")
    older.execute("BEGIN")
    older.execute("SELECT pg_current_xact_id()")
    ms.create_stream_table("visited", VIEWS["visited"])
    old.execute("INSERT INTO visits VALUES ('page 1', 1)")
    older.execute("DELETE FROM visits WHERE page = 'page 2'")
    ms.refresh("visited")
    old.execute("COMMIT")
    older.execute("COMMIT")
    assert ms.refresh("visited").action == "DIFFERENTIAL"
    assert not judge.wrong


@pytest.mark.spark
def test_a_commit_between_capture_and_the_first_cut_is_counted_once(
    ms: Millstream, judge: Judge, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = triggers.install

    # What trigger.install takes, handed on as it comes.
    def then_write(*args: object, **kwargs: object) -> Source:
        source = install(*args, **kwargs)  # type: ignore[arg-type]  # handed on as it comes
        conn.execute("INSERT INTO visits VALUES ('page 1', 1), ('page 1', 1)")
        return source

    monkeypatch.setattr(triggers, "install", then_write)
    ms.create_stream_table("visited", VIEWS["visited"])
    assert ms.refresh("visited").action == "NO_DATA"
    assert not judge.wrong


@pytest.mark.spark
def test_a_second_reader_of_a_source_finds_the_columns_that_the_first_did_not_need(
    ms: Millstream, judge: Judge, another: Another
) -> None:
    ms.create_stream_table("totals", VIEWS["totals"])
    late = another()
    late.execute("BEGIN")
    late.execute("UPDATE orders SET note = 'zz', amount = 5 WHERE id < 100")

    def commit() -> None:
        time.sleep(0.5)
        late.execute("COMMIT")

    thread = Thread(target=commit)
    thread.start()
    ms.create_stream_table("extremes", VIEWS["extremes"])
    thread.join()
    late.execute("UPDATE orders SET note = 'zzz' WHERE id = 3")
    assert [report.action for report in ms.refresh_all()] == ["DIFFERENTIAL", "DIFFERENTIAL"]
    assert not judge.wrong


# -- beside another session ----------------------------------------------------------------------


@pytest.mark.spark
def test_a_scheduler_in_another_session_does_not_spoil_a_create(
    ms: Millstream, judge: Judge, database: str, spark: SparkSession
) -> None:
    over, refused = Event(), list[MillstreamError]()

    def schedule() -> None:
        with millstream.connect(database, spark=spark) as other:
            while not over.is_set():
                try:
                    other.refresh_all()
                except MillstreamError as error:
                    refused.append(error)

    thread = Thread(target=schedule)
    thread.start()
    try:
        for name, query in VIEWS.items():
            ms.create_stream_table(name, query)
    finally:
        over.set()
        thread.join()
    assert all(error.retryable for error in refused), refused
    assert {status.status for status in ms.status()} == {"ACTIVE"}
    ms.refresh_all()
    assert not judge.wrong


# -- not to the end ------------------------------------------------------------------------------


def everything(conn: Connection) -> Found:
    """Every table, function and trigger there is, and every row of the catalog that tells of one."""
    return conn.execute(
        "SELECT 'relation', oid::regclass::text FROM pg_class WHERE oid >= 16384 AND relpersistence <> 't' "
        "UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE oid >= 16384 "
        "UNION ALL SELECT 'trigger', tgname || ' on ' || tgrelid::regclass FROM pg_trigger "
        "UNION ALL SELECT 'stream table', name FROM millstream.stream_tables "
        "UNION ALL SELECT 'source', name FROM millstream.sources "
        "UNION ALL SELECT 'dependency', source_relid::text FROM millstream.dependencies "
        "UNION ALL SELECT 'block', name FROM millstream.blocks "
        "UNION ALL SELECT 'refresh', id::text FROM millstream.refresh_history "
        "UNION ALL SELECT 'lock', stream_table_id::text FROM millstream.locks "
        "ORDER BY 1, 2"
    ).fetchall()


class Interrupted(BaseException):
    """Like the user's Ctrl-C: no Exception."""


@pytest.mark.spark
@pytest.mark.parametrize(
    "point", ["capturing", "cut_taken", "demand_read", "spark_done", "committed"]
)
def test_a_create_that_is_interrupted_leaves_nothing_behind(
    ms: Millstream, judge: Judge, conn: Connection, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    before = everything(conn)

    def interrupt(reached: str) -> None:
        if reached == point or (
            point == "capturing" and reached.startswith("capturing changes of orders")
        ):
            raise Interrupted

    monkeypatch.setattr(cut, "failpoint", interrupt)
    monkeypatch.setattr(evaluate, "failpoint", interrupt)
    ms.app.progress = lambda step, share: interrupt(step)
    with pytest.raises(Interrupted):
        ms.create_stream_table("totals", VIEWS["totals"])
    assert everything(conn) == before
    monkeypatch.undo()
    ms.app.progress = lambda step, share: None
    ms.create_stream_table("totals", VIEWS["totals"])
    assert not judge.wrong


@pytest.mark.spark
def test_a_create_that_fails_beside_another_leaves_the_other_alone(
    ms: Millstream, judge: Judge, conn: Connection
) -> None:
    ms.create_stream_table("totals", VIEWS["totals"])
    before = everything(conn)

    def fail(*_: object) -> None:
        raise psycopg.errors.DiskFull("no space left")

    ms.app.witness = fail
    with pytest.raises(MillstreamError):
        ms.create_stream_table("extremes", VIEWS["extremes"])
    # The column that only the second one needed stays captured; nobody minds.
    assert everything(conn) == before
    ms.app.witness = judge
    conn.execute("UPDATE orders SET amount = 7 WHERE id = 3")
    assert ms.refresh("totals").action == "DIFFERENTIAL"
    assert not judge.wrong


@pytest.mark.spark
def test_a_create_whose_session_is_ended_leaves_nothing_behind(
    ms: Millstream, judge: Judge, conn: Connection
) -> None:
    before = everything(conn)

    def end(*_: object) -> None:
        conn.execute("SELECT pg_terminate_backend(%s)", (ms.app.conn.info.backend_pid,))

    ms.app.witness = end
    with pytest.raises(MillstreamError) as caught:
        ms.create_stream_table("totals", VIEWS["totals"])
    assert caught.value.retryable
    assert everything(conn) == before
    ms.app.witness = judge
    ms.create_stream_table("totals", VIEWS["totals"])
    assert not judge.wrong
