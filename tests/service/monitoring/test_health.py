"""The verb health is red where something is wrong, and what it says to do is right."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
import pytest

from millstream.catalog import stream_tables
from millstream.client import Millstream
from millstream.errors import Busy, MillstreamError, RefreshFailed
from millstream.service.monitoring.doctor import Check, doctor
from millstream.service.monitoring.repair_hint import REPAIRED

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(ms: Millstream, writer: psycopg.Connection) -> psycopg.Connection:
    writer.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, w int); INSERT INTO t VALUES (1, 1, 1)"
    )
    return writer


def health(ms: Millstream, name: str) -> Check:
    return next(check for check in ms.health() if check.name == name)


@pytest.mark.parametrize("schedule", ["manual", "1h", "continuous"])
def test_it_is_red_where_the_last_refresh_failed_whatever_the_schedule(
    ms: Millstream, writer: psycopg.Connection, schedule: str
) -> None:
    """A manual stream table whose every refresh failed was called healthy: only status and age were
    looked at.
    """
    ms.create_stream_table("st", "SELECT id, 10 / v AS v FROM t", schedule=schedule)
    writer.execute("UPDATE t SET v = 0")
    with pytest.raises(RefreshFailed):
        ms.refresh("st")
    check = health(ms, "stream table public.st")
    assert (check.ok, check.found) == (
        False,
        'the last refresh failed: refresh of "st" failed [MS402]',
    )
    assert check.hint == "See: millstream history public.st"
    writer.execute("UPDATE t SET v = 5")
    ms.refresh("st")
    assert health(ms, "stream table public.st").ok


def test_it_is_red_while_trouble_lasts_that_passes_by_itself(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    ms.create_stream_table("st", "SELECT id FROM t", schedule="manual")
    for _ in range(5):
        stream_tables.record_transient(
            ms.app.conn, ms.app.named("st").id, Busy.working_on("st", None)
        )
    check, (told,) = health(ms, "stream table public.st"), ms.status()
    assert (check.ok, told.status, told.consecutive_errors, told.transient_errors) == (
        False,
        "ACTIVE",
        0,
        5,
    )
    assert "5 times in a row" in check.found
    ms.refresh("st")
    assert health(ms, "stream table public.st").ok
    assert ms.status()[0].transient_errors == 0


@dataclass(frozen=True)
class Trouble:
    """What is done to a source, and what gives the query back what it needs, where a refresh
    cannot.
    """

    done: str
    undone: str = ""


TROUBLES = {
    "trigger disabled": Trouble("ALTER TABLE t DISABLE TRIGGER ALL"),
    "buffer dropped": Trouble("DROP TABLE millstream_changes.changes_{oid}"),
    "table dropped": Trouble("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v int, w int)"),
    "table swapped": Trouble("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v int, w int)"),
    "table renamed": Trouble("ALTER TABLE t RENAME TO u", "ALTER TABLE u RENAME TO t"),
    "column dropped": Trouble("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v int"),
    "column renamed": Trouble(
        "ALTER TABLE t RENAME COLUMN v TO x", "ALTER TABLE t RENAME COLUMN x TO v"
    ),
    "column retyped": Trouble(
        "ALTER TABLE t ALTER COLUMN v TYPE bigint", "ALTER TABLE t ALTER COLUMN v TYPE int"
    ),
    "unused column dropped": Trouble("ALTER TABLE t DROP COLUMN w"),
    "key dropped": Trouble(
        "ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id)"
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=list(TROUBLES))
def test_what_it_says_about_a_source_is_what_the_next_refresh_does(
    ms: Millstream, writer: psycopg.Connection, database: str, trouble: Trouble
) -> None:
    """Of a source that was dropped, it said that the next refresh repairs it; the refresh said that
    it cannot.
    """
    ms.create_stream_table("st", "SELECT id, v FROM t", schedule="manual")
    ms.create_stream_table("filtered", "SELECT id FROM t WHERE v > 0", schedule="manual")
    oid = writer.execute("SELECT 't'::regclass::oid").fetchall()[0][0]
    writer.execute(trouble.done.format(oid=oid).encode())
    hints = [
        check.hint for check in ms.health() if check.name.startswith("source ") and not check.ok
    ]
    hints += [check.hint for check in doctor(database) if check.name == "capture" and not check.ok]
    outcomes = [_refreshed(ms, name) for name in ("st", "filtered")]
    failed = [one for one in outcomes if isinstance(one, MillstreamError)]
    for hint in hints:
        assert (hint == REPAIRED) == (not failed), (hint, outcomes)
        assert ("millstream drop" in hint) == bool(failed)
    if failed:
        writer.execute(trouble.undone.encode())
    outcomes = [_refreshed(ms, name) for name in ("st", "filtered")]
    assert not [str(one) for one in outcomes if isinstance(one, MillstreamError)]
    assert [check for check in ms.health() if not check.ok] == []
    assert ms.verify("st").ok
    assert ms.verify("filtered").ok


def _refreshed(ms: Millstream, name: str) -> str | MillstreamError:
    try:
        return ms.refresh(name).action
    except MillstreamError as error:
        return error
