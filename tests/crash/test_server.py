"""PostgreSQL itself killed, or our session ended, between refreshes and in the middle of one.

The client says that the server is gone, in an error that is worth another try; the next try
connects anew, and finds the frontier that belongs to the rows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest
from pyspark.sql import SparkSession

from millstream.bundled.server import Server, embedded
from millstream.errors import MillstreamError, ServerDown
from millstream.observe.failpoint import FAILPOINTS
from millstream.postgres.connection import connect
from millstream.refresh import cut, evaluate, recursion, staging_tables
from millstream.refresh.apply import merge, record
from millstream.scheduler import round
from millstream.testing.writers import SHORT, VIEWS, Writers

if TYPE_CHECKING:
    from tests.crash.conftest import Mill

MakeMill = Callable[[str, SparkSession], "Mill"]

DIFFERENTIAL = dict.fromkeys(VIEWS, "DIFFERENTIAL")
NO_DATA = dict.fromkeys(VIEWS, "NO_DATA")


@pytest.fixture(scope="module")
def fragile() -> Iterator[Server]:
    """A server of our own, to be killed.

    What reached the system survives a killed process, on the disk or not.
    """
    settings = {"fsync": "off", "restart_after_crash": "off"}
    with embedded(
        bindir=os.environ.get("MILLSTREAM_TEST_BINDIR") or None, settings=settings
    ) as server:
        yield server


@pytest.fixture(scope="module")
def fragile_mill(fragile: Server, spark: SparkSession, make_mill: MakeMill) -> Iterator[Mill]:
    mill = make_mill(fragile.dsn, spark)
    yield mill
    mill.close()


def restart(server: Server, mill: Mill) -> None:
    """Kill it, if it still lives, and start it; the client under test is left to find out by
    itself.
    """
    server.kill()
    server.start()
    mill.conn = connect(mill.dsn)


def when_passed(patch: pytest.MonkeyPatch, point: str, act: Callable[[], object]) -> None:
    """Act once, when a refresh in this process passes that failpoint."""
    left = [act]

    def passed(name: str) -> None:
        if name == point and left:
            left.pop()()

    for module in (cut, evaluate, recursion, staging_tables, merge, record, round):
        patch.setattr(module, "failpoint", passed)


@pytest.mark.spark
def test_a_server_that_is_down_is_reported_and_found_again(
    fragile: Server, fragile_mill: Mill
) -> None:
    fragile_mill.change()
    fragile.kill()
    for _ in range(2):
        with pytest.raises(ServerDown) as caught:
            fragile_mill.refresh()
        assert caught.value.retryable
    with pytest.raises(ServerDown):
        fragile_mill.ms.status()
    fragile.start()
    fragile_mill.conn = connect(fragile_mill.dsn)
    assert fragile_mill.refresh() == DIFFERENTIAL
    fragile_mill.check()


@pytest.mark.spark
@pytest.mark.parametrize("point", FAILPOINTS)
def test_a_server_killed_at_this_point_of_a_refresh_has_applied_it_whole_or_not_at_all(
    fragile: Server, fragile_mill: Mill, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    fragile_mill.change()
    before = fragile_mill.seen()
    when_passed(monkeypatch, point, fragile.kill)
    if point == "pruned":
        fragile_mill.refresh()
    else:
        with pytest.raises(ServerDown):
            fragile_mill.refresh()
    restart(fragile, fragile_mill)
    assert (fragile_mill.seen() == before) == (point not in ("committed", "pruned"))
    assert fragile_mill.refresh() == (NO_DATA if point in ("committed", "pruned") else DIFFERENTIAL)
    fragile_mill.check()


@pytest.mark.spark
@pytest.mark.parametrize("point", FAILPOINTS)
def test_a_session_ended_at_this_point_of_a_refresh_has_applied_it_whole_or_not_at_all(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    mill.change()
    before = mill.seen()
    ours = mill.ms.app.conn.info.backend_pid
    when_passed(
        monkeypatch,
        point,
        lambda: mill.conn.execute("SELECT pg_terminate_backend(%s, 5000)", (ours,)),
    )
    if point == "pruned":
        mill.refresh()
    else:
        with pytest.raises(MillstreamError) as caught:
            mill.refresh()
        assert caught.value.retryable
    assert (mill.seen() == before) == (point not in ("committed", "pruned"))
    assert mill.refresh() == (NO_DATA if point in ("committed", "pruned") else DIFFERENTIAL)
    mill.check()


@pytest.mark.spark
def test_a_session_ended_in_the_witness_leaves_nothing_applied(mill: Mill) -> None:
    mill.change()
    before = mill.seen()

    def end(*_: object) -> None:
        mill.conn.execute(
            "SELECT pg_terminate_backend(%s, 5000)", (mill.ms.app.conn.info.backend_pid,)
        )

    mill.ms.app.witness = end
    with pytest.raises(ServerDown):
        mill.ms.refresh_all()
    mill.ms.app.witness = mill.compare
    assert mill.seen() == before
    assert mill.refresh() == DIFFERENTIAL
    mill.check()


@pytest.mark.spark
def test_open_transactions_are_lost_in_a_crash_and_prepared_ones_are_not(
    fragile: Server, fragile_mill: Mill
) -> None:
    lost, kept = connect(fragile_mill.dsn), connect(fragile_mill.dsn)
    for session in (lost, kept):
        session.execute("BEGIN")
        session.execute("INSERT INTO visits VALUES ('page 7', 1), ('page 7', 1)")
    kept.execute("PREPARE TRANSACTION 'kept'")
    fragile_mill.refresh()
    restart(fragile, fragile_mill)
    fragile_mill.refresh()
    fragile_mill.conn.execute("COMMIT PREPARED 'kept'")
    assert fragile_mill.refresh() == {**NO_DATA, "visited": "DIFFERENTIAL"}
    fragile_mill.check()


@pytest.mark.spark
def test_a_crash_among_writers_loses_and_repeats_nothing(
    fragile: Server, fragile_mill: Mill
) -> None:
    writers = Writers(fragile_mill.dsn, seed=3, count=6, truncate_every=0, paces=SHORT)
    with contextlib.suppress(psycopg.OperationalError), writers:
        for _ in range(3):
            fragile_mill.refresh()
        restart(fragile, fragile_mill)
    assert writers.done["committed"] > 0
    _end_prepared(fragile_mill)
    fragile_mill.refresh()
    fragile_mill.check()


def _end_prepared(mill: Mill) -> None:
    """Commit what the writers had prepared and can no longer end."""
    for (gid,) in mill.conn.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
        mill.conn.execute(f"COMMIT PREPARED '{gid}'".encode())
