"""Read your own writes: `wait_visible` returns when a stream table has all that its caller sees,
and not before.

Refreshes are played by statements, with the frontiers that real ones record. The rows tell the
truth: each stream table is a copy of what its last refresh saw.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import pytest

from millstream.catalog import stream_tables
from millstream.catalog.installation import install
from millstream.catalog.stream_tables import Advance
from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection

Open = Callable[[], Connection]

# Two sources; `low` reads the first, `high` reads both and `low`, `top` reads `high`.
SET_UP = """
    CREATE TABLE a (n int PRIMARY KEY); CREATE TABLE b (n int PRIMARY KEY);
    CREATE TABLE low (n int PRIMARY KEY); CREATE TABLE high (kind text, n int, PRIMARY KEY (kind, n));
    CREATE TABLE top (kind text, n int, PRIMARY KEY (kind, n));
    INSERT INTO millstream.stream_tables (
        schema_name, name, relid, query, canonical_query, schedule, refresh_mode, status
    )
    SELECT 'public', t, t::regclass, 'q', 'q', '1s', 'AUTO', 'ACTIVE' FROM unnest(ARRAY['low', 'high', 'top']) AS t;
    INSERT INTO millstream.sources (relid, schema_name, name, cdc_mode, columns)
    SELECT t::regclass, 'public', t, 'TRIGGER', '[]' FROM unnest(ARRAY['a', 'b', 'low', 'high']) AS t;
    INSERT INTO millstream.dependencies (stream_table_id, source_relid, columns)
    SELECT s.id, r.reads::regclass, '{n}'
    FROM (VALUES ('low', 'a'), ('high', 'a'), ('high', 'b'), ('high', 'low'), ('top', 'high')) AS r (name, reads)
    JOIN millstream.stream_tables AS s ON s.name = r.name;
    INSERT INTO millstream.upstreams (stream_table_id, upstream_id, via)
    SELECT s.id, u.id, '{}'
    FROM (VALUES ('high', 'low'), ('top', 'high')) AS r (name, reads)
    JOIN millstream.stream_tables AS s ON s.name = r.name
    JOIN millstream.stream_tables AS u ON u.name = r.reads;
    DO $$
    DECLARE
        source text;
    BEGIN
        FOREACH source IN ARRAY ARRAY['a', 'b', 'low', 'high'] LOOP
            EXECUTE format(
                'CREATE TABLE millstream_changes.changes_%s'
                ' (xid xid8 NOT NULL, action "char", origin "char" DEFAULT ''t'')',
                source::regclass::oid
            );
            EXECUTE format(
                'CREATE FUNCTION millstream_changes.capture_%1$s() RETURNS trigger LANGUAGE plpgsql AS $t$ BEGIN'
                ' INSERT INTO millstream_changes.changes_%1$s VALUES (pg_current_xact_id(), ''I'');'
                ' RETURN NULL; END $t$;'
                'CREATE TRIGGER capture AFTER INSERT ON %2$I FOR EACH ROW'
                ' EXECUTE FUNCTION millstream_changes.capture_%1$s()',
                source::regclass::oid, source
            );
        END LOOP;
    END $$;
"""
COPIES = {
    "low": "INSERT INTO low SELECT n FROM a ON CONFLICT DO NOTHING",
    "high": "INSERT INTO high SELECT 'a', n FROM a UNION ALL SELECT 'b', n FROM b UNION ALL SELECT 'low', n FROM low"
    " ON CONFLICT DO NOTHING",
    "top": "INSERT INTO top SELECT kind, n FROM high ON CONFLICT DO NOTHING",
}
# Those that a refresh takes along.
GROUPS = (["low"], ["low", "high"], ["high"], ["top"], ["low", "high", "top"], ["high", "top"])
# Of each stream table, what it has of the two sources: what has come on all ways.
CONTENT = {
    "low": ("SELECT n FROM low", ""),
    "high": (
        "SELECT n FROM high WHERE kind = 'a' INTERSECT SELECT n FROM high WHERE kind = 'low'",
        "SELECT n FROM high WHERE kind = 'b'",
    ),
    "top": (
        "SELECT n FROM top WHERE kind = 'a' INTERSECT SELECT n FROM top WHERE kind = 'low'",
        "SELECT n FROM top WHERE kind = 'b'",
    ),
}


@pytest.fixture
def played(conn: Connection) -> Connection:
    """A catalog with a graph of stream tables, all of them refreshed once."""
    install.install(conn)
    conn.execute(SET_UP)
    refresh(conn, ["low", "high", "top"])
    return conn


def refresh(conn: Connection, names: list[str]) -> None:
    """Refresh these in one cut, in the order of their dependencies, as a refresh records it."""
    ids = {table.name: table.id for table in stream_tables.every(conn)}
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        taken = conn.execute(
            "SELECT pg_current_snapshot()::text, now(), pg_current_xact_id()::text::int8"
        ).fetchall()
        [(text, cut_at, own)] = taken
        for name in sorted(names, key=list(COPIES).index):
            conn.execute(COPIES[name].encode())
            # One that reads what was written in this cut sees that, too.
            snapshot = Snapshot.parse(text)
            frontier = snapshot.including(own) if name != "low" else snapshot
            stream_tables.advance(conn, [ids[name]], Advance(str(frontier), cut_at))


@dataclass
class Writer:
    """A session that writes, in transactions of several steps with savepoints."""

    conn: Connection

    def step(self, chance: random.Random, number: int) -> None:
        """Write a row, or end the transaction."""
        if self.conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            self.conn.execute("BEGIN")
        action = chance.choice(["write", "write", "savepoint", "roll back", "commit", "commit"])
        if action == "write":
            self.conn.execute(f"INSERT INTO {chance.choice('ab')} VALUES ({number})".encode())
        elif action == "savepoint":
            self.conn.execute(
                f"SAVEPOINT s; INSERT INTO {chance.choice('ab')} VALUES ({number})".encode()
            )
            if chance.random() < 0.5:
                self.conn.execute("ROLLBACK TO s")
        else:
            self.conn.execute("COMMIT" if action == "commit" else "ROLLBACK")


@dataclass(frozen=True)
class Seen:
    """What somebody saw: a snapshot, with the rows of both sources in it."""

    snapshot: str
    position: str
    rows: tuple[frozenset[int], frozenset[int]]


def look(conn: Connection) -> Seen:
    query = (
        "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text,"
        " ARRAY(SELECT n FROM a), ARRAY(SELECT n FROM b)"
    )
    [(snapshot, position, a, b)] = conn.execute(query.encode()).fetchall()
    return Seen(snapshot, position, (frozenset(a), frozenset(b)))


def is_visible(conn: Connection, name: str, seen: Seen) -> bool:
    query = "SELECT millstream.is_visible(%s::regclass, %s::pg_snapshot, NULL, %s::pg_lsn)"
    found: bool = conn.execute(query, (name, seen.snapshot, seen.position)).fetchall()[0][0]
    return found


def content(conn: Connection, name: str) -> tuple[frozenset[int], frozenset[int]]:
    of_a, of_b = (
        frozenset(n for (n,) in conn.execute(query.encode())) if query else frozenset()
        for query in CONTENT[name]
    )
    return of_a, of_b


def test_it_is_visible_only_when_everything_that_was_seen_is_there(
    played: Connection, another: Open
) -> None:
    """Random writers with savepoints and aborts, refreshes of some, looks at any time, against the
    rows themselves.
    """
    chance = random.Random(7)
    writers = [Writer(another()) for _ in range(3)]
    seen = list[Seen]()
    wrong, visible, hidden = list[str](), 0, 0
    for number in range(700):
        action = chance.random()
        if action < 0.6:
            chance.choice(writers).step(chance, number)
        elif action < 0.75:
            seen = [*seen[-3:], look(played)]
        elif action < 0.85:
            refresh(played, chance.choice(GROUPS))
        for name in COPIES if seen else ():
            one = chance.choice(seen)
            needed = (one.rows[0], frozenset[int]() if name == "low" else one.rows[1])
            if is_visible(played, name, one):
                visible += 1
                has = content(played, name)
                if not (needed[0] <= has[0] and needed[1] <= has[1]):
                    wrong.append(f"step {number}: {name} lacks what {one.snapshot} saw")
            else:
                hidden += 1
    assert wrong == []
    assert min(visible, hidden) > 100
    refresh(played, ["low", "high", "top"])
    assert [is_visible(played, name, one) for name in COPIES for one in seen] == [True] * 3 * len(
        seen
    )


def test_an_upstream_that_is_refreshed_alone_is_not_in_its_readers(played: Connection) -> None:
    """Both frontiers contain the change, and the reader's rows do not."""
    played.execute("INSERT INTO a VALUES (1)")
    seen = look(played)
    refresh(played, ["high"])
    refresh(played, ["low"])
    assert [is_visible(played, name, seen) for name in ("low", "high", "top")] == [
        True,
        False,
        False,
    ]
    refresh(played, ["high"])
    assert [is_visible(played, name, seen) for name in ("high", "top")] == [True, False]
    refresh(played, ["top"])
    # It stays visible, although what it reads goes on.
    played.execute("INSERT INTO a VALUES (2)")
    refresh(played, ["low", "high"])
    assert is_visible(played, "top", seen)


def test_where_no_source_changes_nothing_is_waited_for(played: Connection) -> None:
    """A service that finds no changes moves no frontier."""
    played.execute("CREATE TABLE elsewhere (n int); INSERT INTO elsewhere VALUES (1)")
    assert [is_visible(played, name, look(played)) for name in COPIES] == [True, True, True]
    played.execute("INSERT INTO b VALUES (1)")
    assert [is_visible(played, name, look(played)) for name in COPIES] == [True, False, False]


def test_changes_that_may_still_come_from_wal_are_waited_for(played: Connection) -> None:
    """WAL capture stores a change after its commit: an empty buffer says nothing before WAL is read
    that far.
    """
    played.execute(
        "UPDATE millstream.sources SET cdc_mode = 'WAL' WHERE name = 'b';"
        "INSERT INTO millstream.slots (name, publication, publication_oid, database_oid, system_identifier, timeline,"
        " created_lsn, cursor) VALUES ('millstream_x', 'millstream_x', 1, 1, '1', 1, '0/10', '0/20');"
        "ALTER TABLE b DISABLE TRIGGER capture; INSERT INTO b VALUES (1)"
    )
    seen = look(played)
    assert [is_visible(played, name, seen) for name in COPIES] == [True, False, False]
    played.execute("UPDATE millstream.slots SET cursor = pg_current_wal_insert_lsn()")
    assert [is_visible(played, name, seen) for name in COPIES] == [True, True, True]


def test_before_it_is_filled_nothing_is_visible(played: Connection) -> None:
    played.execute("UPDATE millstream.stream_tables SET frontier = NULL WHERE name = 'low'")
    refresh(played, ["high", "top"])
    assert [is_visible(played, name, look(played)) for name in COPIES] == [False, False, False]


# -- the procedure ---------------------------------------------------------------------------


def ended(conn: Connection, call: str) -> str | None:
    try:
        conn.execute(call.encode())
    except psycopg.Error as error:
        return error.sqlstate
    return None


def test_the_caller_waits_for_what_it_has_committed(played: Connection, another: Open) -> None:
    played.execute("INSERT INTO b VALUES (1)")
    assert ended(played, "CALL millstream.wait_visible('high', '0 s')") == "MS505"
    assert ended(played, "CALL millstream.wait_visible('low', '0 s')") is None
    refreshed = threading.Thread(target=refresh, args=(another(), ["high"]))
    refreshed.start()
    played.execute("CALL millstream.wait_visible('high', '90 s')")
    assert content(played, "high")[1] == {1}
    refreshed.join()
    assert ended(played, "CALL millstream.wait_visible('nothing')") == "MS202"
    played.execute("INSERT INTO b VALUES (2)")
    with pytest.raises(psycopg.Error, match="No service is running"):
        played.execute("CALL millstream.wait_visible('high', '0 s')")


def test_what_the_caller_has_not_committed_is_committed_or_an_error(played: Connection) -> None:
    """A snapshot does not always see the transaction that took it."""
    with played.transaction(force_rollback=True):
        played.execute("INSERT INTO b VALUES (1)")
        assert ended(played, "CALL millstream.wait_visible('high', '0 s')") == "2D000"
    block = (
        "DO $$ BEGIN INSERT INTO b VALUES (2); CALL millstream.wait_visible('high', '0 s'); END $$"
    )
    assert ended(played, block) == "MS505"
    refresh(played, ["high"])
    assert ended(played, "CALL millstream.wait_visible('high', '0 s')") is None


@pytest.mark.parametrize("seed", range(3))
def test_what_several_snapshots_have_in_common(conn: Connection, seed: int) -> None:
    install.install(conn)
    chance = random.Random(seed)

    def snapshot() -> Snapshot:
        xmax = chance.randint(10, 20)
        running = sorted(chance.sample(range(5, xmax), chance.randint(0, 4)))
        return Snapshot(running[0] if running else xmax, xmax, tuple(running))

    for _ in range(100):
        given = [snapshot() for _ in range(chance.randint(1, 3))]
        row = conn.execute(
            "SELECT millstream.common_snapshot(%s::pg_snapshot[])::text", ([str(s) for s in given],)
        )
        common = Snapshot.parse(row.fetchall()[0][0])
        for xid in range(25):
            assert common.sees(xid) == all(one.sees(xid) for one in given)
        sees = conn.execute(
            "SELECT millstream.sees(%s, %s, NULL)", (str(given[0]), str(given[-1]))
        ).fetchall()[0][0]
        if sees:
            assert all(given[0].sees(xid) for xid in range(25) if given[-1].sees(xid))
