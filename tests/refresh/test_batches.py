"""Which stream tables share a cut: whole graphs, as many as the server's lock table has room for.

With everything that is due in one transaction, some 200 stream tables that changed together took
all of the server's locks: nothing was refreshed any more, and statements of the application failed
too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import cast

import psycopg
import pytest

import millstream
from millstream import Millstream
from millstream.bundled.server import Server, embedded
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import LockTableFull
from millstream.postgres.lock_table import LockTable
from millstream.refresh import batches as module
from millstream.refresh.batches import LOCKS_PER_CUT, Footprint, Graph, batches, graphs
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.report import RefreshReport
from millstream.settings import Settings
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff
from millstream.testing.kinds import KINDS, make_table

# -- the choice, without a server --------------------------------------------------------------


def job(id_: int, upstreams: Sequence[int] = (), source: int = 0) -> Job:
    """A stream table that reads these others, and a table."""
    table = cast(StreamTable, SimpleNamespace(id=id_, relid=100 + id_, name=f"s{id_}"))
    return Job(table, (), upstreams=frozenset(upstreams), recorded_relids=frozenset({source}))


def ids(found: Sequence[Graph]) -> list[list[int]]:
    return [[one.table.id for one in graph] for graph in found]


def test_stream_tables_that_read_each_other_are_one_graph_and_a_shared_source_ties_nothing() -> (
    None
):
    # A diamond 1 -> 2, 3 -> 4; a chain 5 -> 6; 7 reads the same source as 1.
    jobs = [job(1), job(2, [1]), job(3, [1]), job(4, [2, 3]), job(5), job(6, [5]), job(7)]
    assert sorted(ids(graphs(jobs))) == [[1, 2, 3, 4], [5, 6], [7]]


def test_graphs_that_read_the_same_source_stand_beside_each_other() -> None:
    jobs = [job(1, source=30), job(2, source=10), job(3, source=30), job(4, source=10)]
    assert ids(graphs(jobs)) == [[2], [4], [1], [3]]


def test_a_cut_takes_as_many_graphs_as_fit_and_never_part_of_one() -> None:
    found: list[Graph] = [[job(1), job(2)], [job(3)], [job(4), job(5)]]
    footprints = {number: Footprint({number: 10}) for number in range(1, 6)}
    for room, cuts in (
        (50, [[[1, 2], [3], [4, 5]]]),
        (49, [[[1, 2], [3]], [[4, 5]]]),
        (20, [[[1, 2]], [[3]], [[4, 5]]]),
    ):
        chosen = batches(found, footprints, LOCKS_PER_CUT + room)
        assert [ids(cut) for cut in chosen.cuts] == cuts
        assert not chosen.too_large


def test_what_two_stream_tables_lock_counts_once() -> None:
    footprints = {number: Footprint({"source": 30, number: 5}) for number in range(1, 5)}
    chosen = batches([[job(number)] for number in range(1, 5)], footprints, LOCKS_PER_CUT + 50)
    assert [ids(cut) for cut in chosen.cuts] == [[[1], [2], [3], [4]]]


def test_a_graph_that_does_not_fit_is_left_out_and_a_single_stream_table_is_left_to_the_server() -> (
    None
):
    footprints = {number: Footprint({number: 10}) for number in range(1, 5)} | {
        5: Footprint({5: 100})
    }
    found: list[Graph] = [[job(1), job(2), job(3)], [job(4)], [job(5)]]
    chosen = batches(found, footprints, LOCKS_PER_CUT + 20)
    assert [ids(cut) for cut in chosen.cuts] == [[[4]], [[5]]]
    assert [(ids([graph]), locks) for graph, locks in chosen.too_large] == [
        ([[1, 2, 3]], LOCKS_PER_CUT + 30)
    ]


def test_the_setting_that_is_named_gives_the_room_that_is_needed() -> None:
    for held in (0, 17, 5_000):
        for locks in (1, 640, 3_200, 9_999):
            full = LockTable(64, 100, held)
            needed = full.setting_for(locks, 0.5)
            assert LockTable(needed, 100, held).room(0.5) >= locks
            assert LockTable(needed - 1, 100, held).room(0.5) < locks


# -- real servers ------------------------------------------------------------------------------

# The smallest lock table that PostgreSQL has: all of its room for about 20 stream tables.
SMALL = {
    "max_locks_per_transaction": "10",
    "max_connections": "40",
    "max_prepared_transactions": "0",
    "fsync": "off",
}
# As PostgreSQL comes.
DEFAULT = {
    "max_locks_per_transaction": "64",
    "max_connections": "100",
    "max_prepared_transactions": "0",
}
# How many stream tables a server with PostgreSQL's own settings is tried with.
MANY = int(os.environ.get("MILLSTREAM_TEST_MANY", "0"))
QUERY = "SELECT k, count(*) AS n, sum(v) AS v FROM {} GROUP BY k"


def connected(server: Server, **settings: object) -> Millstream:
    return millstream.connect(server.dsn, settings=Settings(spark_master="local[2]", **settings))


def make_tables(writer: psycopg.Connection, count: int) -> None:
    for number in range(count):
        writer.execute(
            f"CREATE TABLE t{number} (id int PRIMARY KEY, k int, v numeric);"
            f"INSERT INTO t{number} SELECT n, n % 3, n FROM generate_series(1, 6) AS n".encode()
        )


def change(writer: psycopg.Connection, count: int) -> None:
    for number in range(count):
        writer.execute(f"UPDATE t{number} SET v = v + {number} + 1 WHERE id <= 3".encode())


@pytest.mark.spark
def test_a_refresh_takes_no_more_locks_than_were_estimated(ms: Millstream, database: str) -> None:
    held = list[int]()

    def count(now: Cut, one: Job, report: RefreshReport) -> None:
        tags = "locktype, database, relation, transactionid::text, virtualxid, classid, objid, objsubid"
        query = f"SELECT count(DISTINCT ({tags})) FROM pg_locks WHERE pid = pg_backend_pid()"
        held.append(now.conn.execute(query.encode()).fetchall()[0][0])

    with psycopg.connect(database, autocommit=True) as writer:
        for kind, query in KINDS.items():
            make_table(writer, f"t_{kind}")
            ms.create_stream_table(kind, query.format(t=f"t_{kind}"), schedule="1h")
        ms.app.witness = count
        for kind in KINDS:
            writer.execute(
                f"UPDATE t_{kind} SET v = v + 1, k = k + 1, id = id + 10, s = repeat(s, 9000)".encode()
            )
            assert ms.refresh(kind).action == "DIFFERENTIAL"
            estimate = module.footprints(ms.app.conn, [ms.app.job(ms.app.named(kind))])
            assert held[-1] <= LOCKS_PER_CUT + sum(next(iter(estimate.values())).locks.values()), (
                kind
            )


@pytest.fixture
def small() -> Iterator[Server]:
    with embedded(settings=SMALL) as server:
        yield server


def crowded(server: Server, free: int) -> psycopg.Connection:
    """A session that holds all locks that the server has room for, but so many."""
    conn, held = psycopg.connect(server.dsn), 0
    try:
        while True:
            conn.execute("SELECT pg_advisory_xact_lock(77, %s)", (held,))
            held += 1
    except psycopg.errors.OutOfMemory:
        conn.rollback()
    conn.execute(
        "SELECT pg_advisory_xact_lock(77, n) FROM generate_series(1, %s) AS n", (held - free,)
    )
    return conn


@pytest.mark.spark
def test_a_tick_is_divided_where_the_lock_table_has_no_room_for_all(
    small: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 120 tables on such a server 44 failed, and from then on nothing was refreshed."""
    count = 24
    cuts = set[str]()

    def exact(now: Cut, one: Job, report: RefreshReport) -> None:
        oracle.check(now.conn, one.table.query, one.table.qualified)
        cuts.add(now.exported)

    def ticked() -> list[str]:
        cuts.clear()
        return [report.action for report in ms.tick()]

    with psycopg.connect(small.dsn, autocommit=True) as writer, connected(small) as ms:
        make_tables(writer, count)
        for number in range(count):
            query = QUERY.format(f"t{number}")
            ms.create_stream_table(f"s{number}", query, schedule="continuous", initialize=False)
        ms.app.witness = exact
        assert ticked() == ["FULL"] * count
        change(writer, count)
        assert ticked() == ["DIFFERENTIAL"] * count
        divided = len(cuts)
        assert 1 < divided < count
        # What others hold counts: then each stream table has a cut of its own.
        with crowded(small, free=200):
            change(writer, count)
            assert ticked() == ["DIFFERENTIAL"] * count
            assert len(cuts) > divided
        # With an estimate that is far too low the server is out of memory, and the cut is halved
        # until it fits.
        monkeypatch.setattr(
            module.Footprints,
            "of",
            lambda *given: {one.table.id: Footprint({}) for one in given[-1]},
        )
        with crowded(small, free=200):
            change(writer, count)
            assert ticked() == ["DIFFERENTIAL"] * count
            assert len(cuts) > 1
        change(writer, count)
        assert ticked() == ["DIFFERENTIAL"] * count
        assert len(cuts) == 1


@pytest.mark.spark
@pytest.mark.skipif(not MANY, reason="takes minutes: MILLSTREAM_TEST_MANY=500")
def test_hundreds_of_stream_tables_are_refreshed_by_a_server_as_it_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Beyond some 200 stream tables PostgreSQL's lock table was exhausted, and nothing was
    refreshed any more.
    """

    def exact(now: Cut, one: Job, report: RefreshReport) -> None:
        oracle.check(now.conn, one.table.query, one.table.qualified)

    def ticked(ms: Millstream, what: str) -> list[str]:
        started = time.perf_counter()
        actions: list[str] = [report.action for report in ms.tick()]
        with capsys.disabled():
            print(f"{what}: {time.perf_counter() - started:.1f} s", flush=True)
        return actions

    with (
        embedded(settings=DEFAULT) as server,
        psycopg.connect(server.dsn, autocommit=True) as writer,
    ):
        make_tables(writer, MANY)
        with connected(server) as ms:
            started = time.perf_counter()
            for number in range(MANY):
                query = QUERY.format(f"t{number}")
                ms.create_stream_table(f"s{number}", query, schedule="continuous", initialize=False)
            with capsys.disabled():
                print(f"\ncreated: {time.perf_counter() - started:.1f} s", flush=True)
            ms.app.witness = exact
            assert ticked(ms, "first tick") == ["FULL"] * MANY
            change(writer, MANY)
            assert ticked(ms, "all changed") == ["DIFFERENTIAL"] * MANY
            assert ticked(ms, "none changed") == ["NO_DATA"] * MANY
        with connected(server) as ms:
            ms.app.witness = exact
            assert ticked(ms, "new process, none changed") == ["NO_DATA"] * MANY
        change(writer, 1)
        with connected(server) as ms:
            ms.app.witness = exact
            assert sorted(ticked(ms, "new process, one changed")) == [
                "DIFFERENTIAL",
                *["NO_DATA"] * (MANY - 1),
            ]


@pytest.mark.spark
def test_a_graph_that_does_not_fit_says_which_setting_would_do_and_with_that_it_fits(
    small: Server,
) -> None:
    count = 15
    with psycopg.connect(small.dsn, autocommit=True) as writer, connected(small) as ms:
        make_tables(writer, 2)
        ms.create_stream_table("base", "SELECT id, k, v FROM t0", schedule="continuous")
        for number in range(count):
            ms.create_stream_table(
                f"s{number}", QUERY.format("base"), schedule="continuous", initialize=False
            )
        ms.create_stream_table("apart", QUERY.format("t1"), schedule="continuous")
        change(writer, 2)
        assert [report.name for report in ms.tick()] == ["apart"]
        with pytest.raises(LockTableFull, match="base") as refused:
            ms.refresh_all()
        assert refused.value.retryable
        assert (
            f"max_locks_per_transaction to {refused.value.needed} or more (it is 10)"
            in refused.value.hint
        )
        assert {table.status for table in ms.status() if table.name != "apart"} <= {
            "ACTIVE",
            "INITIALIZING",
        }
        needed = refused.value.needed
    small.halt()
    with (small.directory / "data" / "postgresql.conf").open("a") as file:
        file.write(f"max_locks_per_transaction = {needed}\n")
    small.start()
    with connected(small) as ms:
        end_backoff(ms.app.conn)
        actions = {report.name: report.action for report in ms.tick()}
        assert len(actions) == count + 2
        assert actions["base"] == "DIFFERENTIAL"
        assert all(ms.verify(name).ok for name in actions)
