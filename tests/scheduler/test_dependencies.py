"""Stream tables over stream tables: a whole graph moves to one moment, in one cut, and each is
exact.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import psycopg
import pytest
from psycopg import sql

import millstream
from millstream import Millstream
from millstream.catalog.upstreams import Upstream
from millstream.errors import Cycle, NotFilled, StillUsed
from millstream.postgres.connection import session
from millstream.refresh.report import RefreshReport
from millstream.scheduler import dependencies
from millstream.testing import oracle

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10,2));
    CREATE TABLE customers (id int PRIMARY KEY, region text);
    INSERT INTO customers SELECT n, 'r' || n % 3 FROM generate_series(1, 9) AS n;
    INSERT INTO orders SELECT n, n % 9 + 1, n FROM generate_series(1, 60) AS n;
"""
# A diamond: both halves read `totals`, and the last reads both halves and a plain table.
GRAPH = {
    "totals": "SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer",
    "large": "SELECT customer, total FROM totals WHERE total > 150",
    "by_region": "SELECT c.region, sum(t.total) AS total FROM totals AS t JOIN customers AS c ON c.id = t.customer "
    "GROUP BY c.region",
    "joined": "SELECT l.customer, c.region, l.total, b.total AS of_region FROM large AS l "
    "JOIN customers AS c ON c.id = l.customer JOIN by_region AS b ON b.region = c.region",
}


@pytest.fixture
def ms(database: str) -> Iterator[Millstream]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
    with millstream.connect(database) as client:
        for name, query in GRAPH.items():
            client.create_stream_table(name, query, schedule="1h", refresh_mode="DIFFERENTIAL")
        yield client


def change(writer: psycopg.Connection, dice: random.Random) -> None:
    with writer.transaction():
        for _ in range(dice.randint(1, 4)):
            number = dice.randint(1, 90)
            amount = dice.choice([0, 5, 80, 200])
            writer.execute("DELETE FROM orders WHERE id = %s", (number,))
            writer.execute(
                "INSERT INTO orders VALUES (%s, %s, %s)", (number, number % 9 + 1, amount)
            )
        writer.execute(
            "UPDATE customers SET region = %s WHERE id = %s",
            (f"r{dice.randint(0, 2)}", dice.randint(1, 9)),
        )


def refreshed(ms: Millstream) -> dict[str, RefreshReport]:
    """All of them at one cut, each compared with its query in that cut."""
    reports = {report.name: report for report in ms.refresh_all()}
    assert len({report.data_timestamp for report in reports.values()}) == 1
    for name in GRAPH:
        found = ms.verify(name)
        assert found.ok, found
    return reports


def test_a_graph_of_stream_tables_is_exact_and_moves_to_one_moment(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    dice = random.Random(4)
    for _ in range(6):
        change(writer, dice)
        reports = refreshed(ms)
        assert {report.action for report in reports.values()} <= {"DIFFERENTIAL", "NO_DATA"}
        assert reports["totals"].action == "DIFFERENTIAL"
        assert reports["by_region"].action == "DIFFERENTIAL"
    # What was passed on once is not passed on again.
    again = ms.refresh_all()
    assert {report.action for report in again} == {"NO_DATA"}


def test_one_refreshed_alone_is_exact_over_what_its_sources_are(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    dice = random.Random(5)
    for name in ("totals", "joined", "by_region", "large", "totals", "large", "joined"):
        change(writer, dice)
        ms.refresh(name)
        assert ms.verify(name).ok
    refreshed(ms)


def test_one_that_others_read_is_not_dropped_under_them(ms: Millstream) -> None:
    with pytest.raises(StillUsed, match="large"):
        ms.drop_stream_table("totals")
    ms.drop_stream_table("totals", cascade=True)
    assert ms.status() == []


# -- cycles ------------------------------------------------------------------------------------

PLAIN = """
    CREATE TABLE t (id int PRIMARY KEY, v int);
    INSERT INTO t SELECT n, n FROM generate_series(1, 5) AS n;
    CREATE VIEW v AS SELECT id, v FROM t;
    CREATE VIEW outer_v AS SELECT id, v FROM v;
    CREATE FUNCTION f() RETURNS bigint IMMUTABLE BEGIN ATOMIC SELECT sum(id) FROM v; END;
    CREATE FUNCTION plus(int, int) RETURNS bigint IMMUTABLE BEGIN ATOMIC SELECT $1 + $2 + count(*) FROM v; END;
    CREATE OPERATOR <+> (LEFTARG = int, RIGHTARG = int, FUNCTION = plus);
    CREATE TABLE p (id int, v int);
    CREATE TABLE p1 (id int, v int) INHERITS (p);
"""
BACK = "CREATE OR REPLACE VIEW v AS SELECT id, v FROM t"


class Case(NamedTuple):
    """How a stream table `a` comes to read itself, and how that is undone."""

    query: str
    ddl: str
    undo: str
    path: str
    others: tuple[str, ...] = ()


CYCLES = {
    "a view": Case(
        "SELECT id, v FROM v", "CREATE OR REPLACE VIEW v AS SELECT id, v FROM a", BACK,
        "public.a -> view public.v -> public.a",
    ),
    "a view made again": Case(
        "SELECT id, v FROM v",
        "DROP VIEW v CASCADE; CREATE VIEW v AS SELECT id, v FROM t UNION ALL SELECT id, v FROM a",
        BACK, "public.a -> view public.v -> public.a",
    ),
    "nested views": Case(
        "SELECT id, v FROM outer_v", "CREATE OR REPLACE VIEW v AS SELECT id, v FROM a", BACK,
        "public.a -> view public.outer_v -> view public.v -> public.a",
    ),
    "another stream table": Case(
        "SELECT id, v FROM v", "CREATE OR REPLACE VIEW v AS SELECT id, v FROM b", BACK,
        "public.a -> view public.v -> public.b -> public.a", ("SELECT id, v FROM a",),
    ),
    "two stream tables and views": Case(
        "SELECT id, v FROM v", "CREATE OR REPLACE VIEW v AS SELECT id, v FROM c", BACK,
        "public.a -> view public.v -> public.c -> view public.w -> public.b -> public.a",
        ("SELECT id, v FROM a", "SELECT id, v FROM w"),
    ),
    "a function": Case(
        "SELECT id, f() AS v FROM t", "CREATE OR REPLACE VIEW v AS SELECT id, v::int FROM a", BACK,
        "public.a -> function public.f() -> view public.v -> public.a",
    ),
    "the function of an operator": Case(
        "SELECT id, id <+> v AS v FROM t", "CREATE OR REPLACE VIEW v AS SELECT id, v::int FROM a", BACK,
        "public.a -> operator public.<+>(integer,integer) -> function public.plus(integer,integer) -> view public.v "
        "-> public.a",
    ),
    "a child of a table": Case(
        "SELECT id, v FROM p", "ALTER TABLE a INHERIT p", "ALTER TABLE a NO INHERIT p",
        "public.a -> table public.p -> public.a",
    ),
}  # fmt: skip


@pytest.fixture
def plain(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(PLAIN)
        yield conn


@pytest.mark.parametrize("again", [False, True], ids=["same process", "new process"])
@pytest.mark.parametrize("case", CYCLES.values(), ids=list(CYCLES))
def test_a_stream_table_that_comes_to_read_itself_is_refused_with_the_path(
    database: str, plain: psycopg.Connection, case: Case, again: bool
) -> None:
    """Replacing a view under a stream table by one that reads it made it grow with every tick,
    without an error.
    """
    ms = millstream.connect(database)
    ms.create_stream_table("a", case.query, schedule="continuous")
    for name, query in zip("bc", case.others, strict=False):
        ms.create_stream_table(name, query, schedule="continuous")
        plain.execute("CREATE OR REPLACE VIEW w AS SELECT id, v FROM b" if name == "b" else "")
    plain.execute(case.ddl.encode())
    if again:
        ms.close()
        ms = millstream.connect(database)
    with ms:
        before = plain.execute("TABLE a").fetchall()
        with pytest.raises(Cycle) as caught:
            ms.refresh("a")
        assert caught.value.path == case.path
        assert case.path in caught.value.detail
        plain.execute("INSERT INTO t VALUES (100, 100); INSERT INTO p VALUES (100, 100)")
        assert "a" not in {report.name for report in ms.tick()}
        assert plain.execute("TABLE a").fetchall() == before
        assert "would read itself" in (ms.status()[0].last_error or "")
        plain.execute(case.undo.encode())
        assert ms.refresh("a").action in ("DIFFERENTIAL", "REINITIALIZE", "NO_DATA")
        if "f()" not in case.query and "<+>" not in case.query:
            oracle.check(ms.app.conn, case.query, "public.a")


def test_two_that_come_to_read_each_other_are_not_both_refreshed(
    database: str, plain: psycopg.Connection
) -> None:
    with millstream.connect(database) as ms:
        plain.execute("CREATE VIEW w AS SELECT id, v FROM t")
        ms.create_stream_table("a", "SELECT v FROM v", schedule="continuous")
        ms.create_stream_table("b", "SELECT v FROM w", schedule="continuous")
        plain.execute("CREATE OR REPLACE VIEW v AS SELECT 1 AS id, v + 1 AS v FROM b")
        plain.execute("CREATE OR REPLACE VIEW w AS SELECT 1 AS id, v + 1 AS v FROM a")
        assert [report.name for report in ms.tick()] == ["a"]
        with pytest.raises(Cycle, match="would read itself") as caught:
            ms.refresh("b")
        assert (
            caught.value.path
            == "public.b -> view public.w -> public.a -> view public.v -> public.b"
        )


@pytest.mark.parametrize("name", ["t", "v"])
def test_creating_what_an_upstream_waits_for_is_refused(
    database: str, plain: psycopg.Connection, name: str
) -> None:
    with millstream.connect(database) as ms:
        ms.create_stream_table("a", f"SELECT id, v FROM {name}")
        ms.create_stream_table("b", "SELECT id, v FROM a")
        plain.execute("DROP VIEW v CASCADE" if name == "v" else "ALTER TABLE t RENAME TO t_old")
        with pytest.raises(Cycle) as caught:
            ms.create_stream_table(name, "SELECT id, v FROM b")
        assert caught.value.path == f"public.{name} -> public.b -> public.a -> public.{name}"
        assert [one.name for one in ms.status()] == ["a", "b"]


def test_a_cycle_that_two_sessions_close_at_once_is_seen_by_the_second(
    database: str, plain: psycopg.Connection
) -> None:
    """Each records one half, in a transaction that does not see the other's."""
    with millstream.connect(database) as ms:
        ms.create_stream_table("a", "SELECT id, v FROM t", initialize=False)
        ms.create_stream_table("b", "SELECT id, v FROM t", initialize=False)
        a, b = ms.app.named("a").id, ms.app.named("b").id
        caught = list[BaseException]()

        def close() -> None:
            with session(database) as conn, conn.transaction():
                try:
                    dependencies.record(conn, b, [Upstream(a)])
                except Cycle as error:
                    caught.append(error)

        second = threading.Thread(target=close)
        with session(database) as first, first.transaction():
            dependencies.record(first, a, [Upstream(b)])
            second.start()
            second.join(timeout=1)
            assert second.is_alive()
        second.join(timeout=30)
        assert [error.path for error in caught if isinstance(error, Cycle)] == [
            "public.b -> public.a -> public.b"
        ]


# -- how old a chain is --------------------------------------------------------------------------

EVENTS = """
    CREATE TABLE events (
        id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT clock_timestamp(), v int
    );
    INSERT INTO events (v) SELECT n FROM generate_series(1, 5) AS n;
"""
# Each holds the ids that it has seen; `d` joins two sides that may be of different ages.
CHAIN = {
    "a": "SELECT id, v FROM events",
    "b": "SELECT id, v FROM a",
    "c": "SELECT id, v FROM b WHERE v >= 0",
    "d": "SELECT c.id, a.v FROM c JOIN a ON a.id = c.id",
}
OF_SOURCES = "SELECT id, v FROM events"


@pytest.fixture
def events(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(EVENTS)
        yield conn


def write(conn: psycopg.Connection) -> None:
    conn.execute("INSERT INTO events (v) VALUES (1)")


def overstated(ms: Millstream, conn: psycopg.Connection) -> dict[str, int]:
    """By stream table: how many events from before its data timestamp it does not have."""
    query = "SELECT count(*) FROM events AS e WHERE e.at < %s AND NOT EXISTS (SELECT FROM {} AS s WHERE s.id = e.id)"
    found = {
        one.name: conn.execute(
            sql.SQL(query).format(sql.Identifier(one.name)), (one.data_timestamp,)
        ).fetchone()
        for one in ms.status()
    }
    return {name: row[0] for name, row in found.items() if row and row[0]}


def timestamps(ms: Millstream) -> dict[str, datetime | None]:
    return {one.name: one.data_timestamp for one in ms.status()}


def test_a_refresh_pulls_what_it_reads_into_its_cut_to_any_depth(
    database: str, events: psycopg.Connection
) -> None:
    """A reader of a stream table that had not been refreshed was as old as that, and said that it
    was fresh.
    """
    with millstream.connect(database) as ms:
        for name, query in CHAIN.items():
            ms.create_stream_table(name, query, schedule="manual", refresh_mode="DIFFERENTIAL")
        write(events)
        report = ms.refresh("d")
        assert (report.action, report.held_back_by) == ("DIFFERENTIAL", ())
        assert set(timestamps(ms).values()) == {report.data_timestamp}
        oracle.check(ms.app.conn, OF_SOURCES, "public.d")
        assert [ms.history(name)[0].action for name in CHAIN] == ["DIFFERENTIAL"] * 4
        assert {ms.history(name)[0].initiated_by for name in "abc"} == {"MANUAL"}


def test_a_reader_of_one_with_triggers_is_refreshed_after_it_and_says_that_it_is_as_old(
    database: str, events: psycopg.Connection
) -> None:
    """Its triggers may write to what the reader reads besides: that is of the reader's own cut, a
    moment later.
    """
    with millstream.connect(database) as ms:
        ms.create_stream_table("a", CHAIN["a"])
        ms.create_stream_table(
            "reader", "SELECT events.id, a.id AS other FROM events LEFT JOIN a ON a.id = events.id"
        )
        events.execute(
            "CREATE FUNCTION answer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO events (v) SELECT 9 WHERE NOT EXISTS (SELECT FROM events WHERE v = 9); RETURN NULL; END $$;"
            "CREATE TRIGGER answer AFTER INSERT ON a FOR EACH STATEMENT EXECUTE FUNCTION answer()"
        )
        write(events)
        reports = {report.name: report for report in ms.refresh_all()}
        assert reports["reader"].data_timestamp == reports["a"].data_timestamp
        assert [one.name for one in reports["reader"].held_back_by] == ["public.a"]
        shown = {one.name: one for one in ms.status()}
        assert shown["reader"].data_timestamp == shown["a"].data_timestamp
        oracle.check(
            ms.app.conn,
            "SELECT e.id, a.id AS other FROM events AS e LEFT JOIN a ON a.id = e.id",
            "reader",
        )


def test_creating_a_reader_pulls_what_it_reads_along(
    database: str, events: psycopg.Connection
) -> None:
    with millstream.connect(database) as ms:
        ms.create_stream_table("a", CHAIN["a"])
        ms.create_stream_table("b", CHAIN["b"], initialize=False)
        write(events)
        report = ms.create_stream_table("c", CHAIN["c"])
        assert report is not None
        assert set(timestamps(ms).values()) == {report.data_timestamp}
        assert [ms.history(name)[0].initiated_by for name in "abc"] == [
            "MANUAL",
            "INITIAL",
            "INITIAL",
        ]
        oracle.check(ms.app.conn, OF_SOURCES, "public.c")


def test_what_reads_a_slower_one_is_as_old_as_that_everywhere_it_is_shown(
    database: str, events: psycopg.Connection
) -> None:
    with millstream.connect(database) as ms:
        ms.create_stream_table("a", CHAIN["a"], schedule="manual")
        for name in "bcd":
            ms.create_stream_table(name, CHAIN[name], schedule="continuous")
        old = timestamps(ms)["a"]
        write(events)
        reports = {report.name: report for report in ms.tick()}
        assert set(reports) == {"b", "c", "d"}
        assert {report.data_timestamp for report in reports.values()} == {old}
        assert old is not None
        assert reports["c"].as_dict()["data_timestamp"] == old.isoformat()
        assert [one.name for one in reports["d"].held_back_by] == ["public.a"]
        assert set(timestamps(ms).values()) == {old}
        write(events)
        ms.refresh("a")
        new = timestamps(ms)["a"]
        assert new is not None
        assert new > old
        ms.tick()
        assert set(timestamps(ms).values()) == {new}
        assert ms.history("d", 1)[0].data_timestamp == new
        assert str(new) in str(ms.explain("d"))
        assert ms.verify("d").ok


def test_one_that_reads_a_manual_one_is_not_due_before_its_time(
    database: str, events: psycopg.Connection
) -> None:
    """Due is counted from the last refresh, not from the age of the data, which refreshing does not
    mend.
    """
    with millstream.connect(database) as ms:
        ms.create_stream_table("a", CHAIN["a"], schedule="manual")
        ms.create_stream_table("b", CHAIN["b"], schedule="1h")
        events.execute(
            "UPDATE millstream.stream_tables SET data_timestamp = now() - interval '1 day'"
        )
        events.execute("UPDATE millstream.stream_tables SET cut_at = now() WHERE name = 'b'")
        assert ms.tick() == []
        check = next(one for one in ms.health() if one.name == "stream table public.b")
        assert check.ok
        assert "public.a was not refreshed with it" in check.hint


def test_the_clock_of_a_reader_is_its_own_and_not_that_of_what_it_reads(
    database: str, events: psycopg.Connection
) -> None:
    """A filter by now() moves from the reader's last cut on, though its data may be older."""
    with millstream.connect(database) as ms:
        ms.create_stream_table("a", "SELECT id, at FROM events", schedule="manual")
        recent = "SELECT id FROM a WHERE at > now() - interval '200 milliseconds'"
        ms.create_stream_table("recent", recent, schedule="continuous", refresh_mode="DIFFERENTIAL")
        actions = list[str]()
        for _ in range(4):
            events.execute("INSERT INTO events (v) VALUES (1)")
            ms.refresh("a")
            events.execute("SELECT pg_sleep(0.12)")
            actions += [report.action for report in ms.tick()]
            assert ms.verify("recent").ok
        assert "DIFFERENTIAL" in actions


@pytest.mark.parametrize("trouble", ["suspended", "failing", "cycle"])
def test_a_reader_of_one_that_cannot_be_refreshed_works_over_what_is_there_and_says_so(
    database: str, events: psycopg.Connection, trouble: str
) -> None:
    with millstream.connect(database) as ms:
        ms.create_stream_table("base", "SELECT id, v FROM events")
        events.execute("CREATE VIEW source AS SELECT id, v FROM base")
        ms.create_stream_table("a", "SELECT id, v FROM source")
        ms.create_stream_table("b", "SELECT a.id, e.v FROM a JOIN events AS e ON e.id = a.id")
        old = timestamps(ms)["a"]
        if trouble == "suspended":
            ms.alter_stream_table("a", status="SUSPENDED")
        elif trouble == "failing":
            events.execute("ALTER TABLE a DROP COLUMN v")
        else:
            events.execute("CREATE OR REPLACE VIEW source AS SELECT id, v FROM b")
        events.execute("UPDATE events SET v = 77 WHERE id = 1")
        write(events)
        report = ms.refresh("b")
        assert (report.action, report.rows_inserted, report.rows_deleted) == ("DIFFERENTIAL", 1, 1)
        assert report.data_timestamp == timestamps(ms)["b"] == old
        told = str(report.held_back_by[0])
        expected = {"suspended": "is SUSPENDED", "failing": "[MS", "cycle": "would read itself"}
        assert told.startswith("public.a ")
        assert expected[trouble] in told
        assert overstated(ms, events) == {}


def test_a_reader_of_one_that_was_never_filled_is_not_filled_with_nothing(
    database: str, events: psycopg.Connection
) -> None:
    with millstream.connect(database) as ms:
        ms.create_stream_table("a", CHAIN["a"], initialize=False)
        ms.alter_stream_table("a", status="SUSPENDED")
        with pytest.raises(NotFilled, match=r"public\.a"):
            ms.create_stream_table("b", CHAIN["b"])
        assert [one.name for one in ms.status()] == ["a"]
        ms.create_stream_table("b", CHAIN["b"], schedule="continuous", initialize=False)
        assert ms.tick() == []
        assert (ms.status()[1].consecutive_errors, ms.status()[1].data_timestamp) == (0, None)
        ms.alter_stream_table("a", status="ACTIVE")
        assert ms.refresh("b").action == "FULL"
        oracle.check(ms.app.conn, OF_SOURCES, "public.b")


def test_what_reads_one_that_must_be_planned_again_waits_for_it_in_the_same_cut(
    database: str, events: psycopg.Connection
) -> None:
    with millstream.connect(database) as ms:
        events.execute("CREATE VIEW source AS SELECT id, v FROM events")
        ms.create_stream_table("a", "SELECT id, v FROM source")
        ms.create_stream_table("b", CHAIN["b"])
        ms.create_stream_table("c", CHAIN["c"])
        events.execute("CREATE OR REPLACE VIEW source AS SELECT id, v + 1 AS v FROM events")
        report = ms.refresh("c")
        assert (report.action, report.held_back_by) == ("DIFFERENTIAL", ())
        assert set(timestamps(ms).values()) == {report.data_timestamp}
        oracle.check(ms.app.conn, "SELECT id, v + 1 AS v FROM events", "public.c")


def test_what_a_new_plan_reads_is_pulled_along_too(
    database: str, events: psycopg.Connection
) -> None:
    with millstream.connect(database) as ms:
        events.execute("CREATE VIEW source AS SELECT id, v FROM events")
        ms.create_stream_table("a", "SELECT v FROM events", schedule="manual")
        ms.create_stream_table("b", "SELECT v FROM source", schedule="manual")
        events.execute("CREATE OR REPLACE VIEW source AS SELECT 1 AS id, v FROM a")
        write(events)
        report = ms.refresh("b")
        assert report.held_back_by == ()
        assert set(timestamps(ms).values()) == {report.data_timestamp}
        oracle.check(ms.app.conn, "SELECT v FROM events", "public.b")


@pytest.mark.parametrize("seed", range(3))
def test_no_stream_table_is_ever_said_to_be_fresher_than_it_is(
    database: str, events: psycopg.Connection, seed: int
) -> None:
    """Whatever is written, refreshed, suspended or failing, in any order: what is older than the
    timestamp is there.
    """
    dice = random.Random(seed)
    with millstream.connect(database) as ms:
        for name, query in CHAIN.items():
            ms.create_stream_table(
                name, query, schedule=dice.choice(["manual", "continuous", "200ms", "1h"])
            )
        for _ in range(25):
            name = dice.choice("abcd")
            match dice.choice(
                ["write", "write", "refresh", "tick", "all", "suspend", "resume", "full"]
            ):
                case "write":
                    write(events)
                case "refresh":
                    ms.refresh(name)
                case "full":
                    ms.refresh(name, full=True)
                case "tick":
                    ms.tick()
                case "all":
                    ms.refresh_all()
                case "suspend":
                    ms.alter_stream_table(name, status="SUSPENDED")
                case "resume":
                    ms.alter_stream_table(name, status="ACTIVE")
            assert overstated(ms, events) == {}
