"""Two stream tables over one source with different frontiers: pruning keeps what the slow one still
needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.client import Millstream
from millstream.postgres.connection import Connection, connect
from millstream.testing import oracle
from millstream.testing.writers import VIEWS, Writers

if TYPE_CHECKING:
    from tests.concurrency.conftest import Judge

# Both read orders, and not the same columns of it.
QUICK, SLOW = "totals", "extremes"


@pytest.fixture
def two(ms: Millstream, judge: Judge) -> None:
    for name in (QUICK, SLOW):
        ms.create_stream_table(name, VIEWS[name])


def buffered(conn: Connection) -> int:
    """How many changes of orders wait."""
    relid = conn.execute("SELECT 'orders'::regclass::oid::int8").fetchall()[0][0]
    count: int = conn.execute(
        f"SELECT count(*) FROM millstream_changes.changes_{relid}".encode()
    ).fetchall()[0][0]
    return count


@pytest.mark.spark
@pytest.mark.usefixtures("two")
def test_what_one_has_consumed_stays_until_the_other_has(
    ms: Millstream, judge: Judge, conn: Connection
) -> None:
    conn.execute("UPDATE orders SET amount = amount + 1 WHERE id < 20")
    ms.refresh(QUICK)
    kept = buffered(conn)
    assert kept == 20
    conn.execute("DELETE FROM orders WHERE id = 1")
    ms.refresh(QUICK)
    assert buffered(conn) == kept + 1
    report = ms.refresh(SLOW)
    assert (report.action, report.inputs[0].rows) == ("DIFFERENTIAL", kept + 1)
    assert buffered(conn) == 0
    assert not judge.wrong


@pytest.mark.spark
@pytest.mark.usefixtures("two")
def test_one_refreshed_often_and_one_rarely_are_both_exact_under_writers(
    ms: Millstream, judge: Judge, conn: Connection, database: str
) -> None:
    with Writers(database, seed=5, count=8, truncate_every=0):
        for number in range(1, 13):
            ms.refresh(QUICK)
            if number % 6 == 0:
                ms.refresh(SLOW)
    ms.refresh_all()
    print(f"\n{judge}")
    assert not judge.wrong, "\n".join(map(str, judge.wrong))
    assert set(judge.actions) <= {
        ("FULL", "INITIAL"),
        ("DIFFERENTIAL", "CHANGED"),
        ("NO_DATA", "NO_CHANGE"),
    }
    assert buffered(conn) == 0
    for name in (QUICK, SLOW):
        oracle.check(conn, VIEWS[name], name)


@pytest.mark.spark
@pytest.mark.usefixtures("two")
def test_a_transaction_older_than_many_refreshes_reaches_both(
    ms: Millstream, judge: Judge, database: str
) -> None:
    with connect(database) as slow, connect(database) as quick:
        slow.execute("BEGIN")
        slow.execute("UPDATE orders SET amount = 0.01 WHERE id = 11")
        for number in range(4):
            quick.execute("UPDATE orders SET amount = %s WHERE id = 13", (number,))
            ms.refresh(QUICK)
        ms.refresh(SLOW)
        slow.execute("PREPARE TRANSACTION 'old'")
        ms.refresh_all()
        slow.execute("COMMIT PREPARED 'old'")
    ms.refresh(SLOW)
    assert ms.refresh(QUICK).rows_updated == 1
    assert not judge.wrong


@pytest.mark.spark
@pytest.mark.usefixtures("two")
def test_a_transaction_of_more_savepoints_than_a_snapshot_lists_is_one_transaction(
    ms: Millstream, judge: Judge, database: str
) -> None:
    """A session's first 64 sub-transactions are listed in shared memory; what is decided by xid
    must not mind more.
    """
    with connect(database) as deep:
        deep.execute("BEGIN")
        for number in range(1, 150, 2):
            deep.execute("SAVEPOINT one")
            deep.execute("UPDATE orders SET amount = 999 WHERE id = %s", (number,))
            deep.execute("ROLLBACK TO one" if number % 3 == 0 else "RELEASE one")
        assert {report.action for report in ms.refresh_all()} == {"NO_DATA"}
        deep.execute("COMMIT")
    assert {report.action for report in ms.refresh_all()} == {"DIFFERENTIAL"}
    assert not judge.wrong
