"""What the soak test of the service does: a graph of stream tables, writers, and faults of every
kind.

    sources          8, one of them behind a view; four are captured from WAL where the server allows it
    stream tables    20, in a graph of depth 4 with diamonds
    writers          4 sessions, with savepoints and rollbacks; they lose their connections as others do
    faults           kill -9 of leader, standby, Java, PostgreSQL and single sessions; a leader that hangs; locks; DDL

After each fault the writers pause, and every stream table must come to show exactly what PostgreSQL
answers to its query, and be ACTIVE.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread

import psycopg
from tests.service.run.conftest import Running, started, wait_for_leader

import millstream
from millstream.bundled.server import Server, children
from millstream.postgres.connection import connect
from millstream.testing import oracle
from millstream.testing.waiting import wait_until

SOURCES = range(1, 9)
KEYS = 12
# Seconds until a stream table must have caught up, on whatever machine.
PATIENCE = float(os.environ.get("MILLSTREAM_TEST_SERVICE_PATIENCE", "180"))

# By name; each may read those before it.
QUERIES: Mapping[str, str] = {
    **{f"a{n}": f"SELECT k, sum(v) AS v, count(*) AS n FROM s{n} GROUP BY k" for n in (1, 2, 3)},
    "a4": "SELECT id, k, v FROM s4 WHERE v > 20",
    "a5": "SELECT x.id, x.k, y.v FROM s5 AS x JOIN s6 AS y ON y.k = x.k AND y.v > 80",
    "a6": "SELECT k, max(v) AS most, min(v) AS least FROM s6 GROUP BY k",
    "a7": "SELECT DISTINCT k, v % 7 AS v FROM seen",
    "a8": "SELECT x.id, x.v, y.v AS other FROM s8 AS x LEFT JOIN s1 AS y ON y.id = x.id",
    "b1": "SELECT a1.k, a1.v + a2.v AS v FROM a1 JOIN a2 ON a2.k = a1.k",
    "b2": "SELECT a1.k, a1.v - a3.v AS v FROM a1 LEFT JOIN a3 ON a3.k = a1.k",
    "b3": "SELECT a4.k, count(*) AS n, sum(a4.v) AS v FROM a4 GROUP BY a4.k",
    "b4": "SELECT k, v FROM a5 UNION ALL SELECT k, most FROM a6",
    "b5": "SELECT k, count(*) AS n FROM a7 GROUP BY k",
    "b6": "SELECT count(*) AS n, sum(v) AS v, sum(other) AS others FROM a8",
    # Diamonds: both sides come from a1.
    "c1": "SELECT b1.k, b1.v AS plus, b2.v AS minus FROM b1 JOIN b2 ON b2.k = b1.k",
    "c2": "SELECT b3.k, b3.v, b5.n FROM b3 FULL JOIN b5 ON b5.k = b3.k",
    "c3": "SELECT k, avg(v) AS mean FROM b4 GROUP BY k",
    "c4": "SELECT k, v, rank() OVER (ORDER BY v DESC, k) AS place FROM b1",
    "d1": "SELECT c1.k, c1.plus, c4.place FROM c1 JOIN c4 ON c4.k = c1.k WHERE c4.place <= 5",
    "d2": "SELECT count(*) AS n FROM c2 JOIN c3 ON c3.k = c2.k",
}

# On sources, while everybody is at work. Each may be done again and again.
DDL: tuple[str, ...] = (
    "ALTER TABLE s1 ADD COLUMN IF NOT EXISTS extra int DEFAULT 1; ALTER TABLE s1 DROP COLUMN extra",
    "CREATE INDEX IF NOT EXISTS s2_v ON s2 (v); DROP INDEX s2_v",
    "ALTER TABLE s3 ALTER COLUMN note TYPE varchar(40); ALTER TABLE s3 ALTER COLUMN note TYPE text",
    "ALTER TABLE s4 RENAME COLUMN v TO w; ALTER TABLE s4 RENAME COLUMN w TO v",
    "TRUNCATE s5",
    "ALTER TABLE s6 RENAME TO s6_moved; ALTER TABLE s6_moved RENAME TO s6",
    "CREATE OR REPLACE VIEW seen AS SELECT k, v + 1 AS v FROM s7",
    "CREATE OR REPLACE VIEW seen AS SELECT k, v FROM s7",
    "ALTER TABLE s8 SET (fillfactor = 90); ALTER TABLE s8 ALTER COLUMN note SET STATISTICS 10",
    "ALTER TABLE s1 ADD CONSTRAINT s1_positive CHECK (v > -1000000); ALTER TABLE s1 DROP CONSTRAINT s1_positive",
)


class Writers:
    """Sessions that write until they are told to pause; a lost connection is opened again."""

    def __init__(self, dsn: str, seed: int, count: int = 4) -> None:
        self._dsn = dsn
        self._stop, self._go = Event(), Event()
        self._working, self._lock = 0, Lock()
        self.done = Counter[str]()
        self._threads = [
            Thread(target=self._work, args=(seed * 100 + n,), daemon=True) for n in range(count)
        ]

    def start(self) -> None:
        """Begin."""
        self._go.set()
        for thread in self._threads:
            thread.start()

    def pause(self) -> None:
        """Let each end its transaction, and begin no other."""
        self._go.clear()
        wait_until(lambda: self._working == 0)

    def go_on(self) -> None:
        """Go on after a pause."""
        self._go.set()

    def stop(self) -> None:
        """End them."""
        self._stop.set()
        self._go.set()
        for thread in self._threads:
            thread.join(60)

    def _work(self, seed: int) -> None:
        dice = random.Random(seed)
        while not self._stop.is_set():
            with (
                contextlib.suppress(psycopg.Error),
                psycopg.connect(self._dsn, autocommit=True) as conn,
            ):
                conn.execute("SET lock_timeout = '2s'")
                while not self._stop.is_set():
                    self._go.wait()
                    with self._lock:
                        self._working += 1
                    try:
                        self._transaction(conn, dice)
                    finally:
                        with self._lock:
                            self._working -= 1
                    self._stop.wait(dice.expovariate(12.0))
            self._stop.wait(0.3)

    def _transaction(self, conn: psycopg.Connection, dice: random.Random) -> None:
        end = "rolled back" if dice.random() < 0.15 else "committed"
        with (
            contextlib.suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected),
            _Ended(conn, end),
        ):
            for _ in range(dice.randint(1, 5)):
                if dice.random() < 0.3:
                    with _Ended(conn, "rolled back" if dice.random() < 0.4 else "committed"):
                        _step(conn, dice)
                else:
                    _step(conn, dice)
            self.done[end] += 1


class _Ended:
    """A transaction, or a savepoint in one, that ends as it was told."""

    def __init__(self, conn: psycopg.Connection, end: str) -> None:
        self._transaction = conn.transaction(force_rollback=end == "rolled back")

    def __enter__(self) -> None:
        self._transaction.__enter__()

    def __exit__(self, *error: object) -> None:
        self._transaction.__exit__(*error)  # type: ignore[arg-type]  # what Python hands over


def _step(conn: psycopg.Connection, dice: random.Random) -> None:
    table, id, few = f"s{dice.choice(SOURCES)}", dice.randint(1, 400), dice.randint(0, 4)
    statement = dice.choice(
        (
            f"INSERT INTO {table} SELECT i, i % {KEYS}, {dice.randint(0, 100)}, 'new' FROM"
            f" generate_series({id}, {id + few}) AS i ON CONFLICT (id) DO UPDATE SET k = excluded.k",
            f"UPDATE {table} SET note = note || 'x', k = {dice.randint(0, KEYS)} WHERE id BETWEEN {id} AND {id + few}",
            f"DELETE FROM {table} WHERE id BETWEEN {id} AND {id + few}",
        )
    )
    conn.execute(statement.encode())


@dataclass
class Measured:
    """How old the stream tables were, second by second, and what was done."""

    staleness: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    recovered: list[float] = field(default_factory=list)
    """Seconds from the end of each fault until every stream table had caught up."""

    def __str__(self) -> str:
        ages = sorted(self.staleness)
        p50, p95 = (ages[int(len(ages) * share)] for share in (0.5, 0.95))
        return (
            f"{self.faults.total()} faults ({', '.join(f'{n} {what}' for what, n in sorted(self.faults.items()))}); "
            f"staleness p50 {p50:.1f} s, p95 {p95:.1f} s, longest {ages[-1]:.1f} s; "
            f"caught up after {sorted(self.recovered)[len(self.recovered) // 2]:.1f} s (median), "
            f"{max(self.recovered):.1f} s (longest)"
        )


class Soak:
    """A server, two services, writers, and what goes wrong with them."""

    def __init__(self, server: Server, directory: Path, seed: int) -> None:
        self.server = server
        self.dice = random.Random(seed)
        self.measured = Measured()
        self.writers = Writers(server.dsn, seed)
        self._directory = directory
        self._services = list[Running]()
        self._exits = contextlib.ExitStack()
        self._sampled = Event()

    # -- set up ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start two services, create the stream tables by one of them, let the writers work."""
        with psycopg.connect(self.server.dsn, autocommit=True) as conn:
            for n in SOURCES:
                identity = "FULL" if n % 2 else "DEFAULT"
                conn.execute(
                    f"CREATE TABLE s{n} (id int PRIMARY KEY, k int NOT NULL, v int NOT NULL, note text)".encode()
                )
                conn.execute(f"ALTER TABLE s{n} REPLICA IDENTITY {identity}".encode())
                rows = (
                    f"SELECT i, i % {KEYS}, i * 37 % 100, 'old' FROM generate_series(1, 400) AS i"
                )
                conn.execute(f"INSERT INTO s{n} {rows}".encode())
            conn.execute("CREATE VIEW seen AS SELECT k, v FROM s7")
        # Filled by the service, as all that comes later.
        with millstream.connect(self.server.dsn) as ms:
            for name, query in QUERIES.items():
                ms.create_stream_table(name, query, schedule="1s", initialize=False)
        for _ in range(2):
            self._start_service()
        wait_for_leader(self.server.dsn)
        self.writers.start()
        self.settle("the start")
        Thread(target=self.sample, name="sampler", daemon=True).start()

    def _start_service(self) -> None:
        log = self._directory / f"service-{len(self._services) + 1}.log"
        running = self._exits.enter_context(
            started(
                self.server.dsn, log, MILLSTREAM_HEARTBEAT_INTERVAL="1s", MILLSTREAM_SCHEDULER_INTERVAL="100ms",
                MILLSTREAM_SPARK_DRIVER_MEMORY="1GB",
            )
        )  # fmt: skip
        self._services.append(running)

    def sample(self) -> None:
        """Note how old the stream tables are, again and again, while the server answers."""
        while not self._sampled.wait(0.25):
            with contextlib.suppress(psycopg.Error), psycopg.connect(self.server.dsn) as conn:
                query = "SELECT extract(epoch FROM now() - data_timestamp)::float8 FROM millstream.stream_tables"
                self.measured.staleness += [
                    age for (age,) in conn.execute(query) if age is not None
                ]

    def stop(self) -> None:
        """End writers and services."""
        self._sampled.set()
        self.writers.stop()
        self._exits.close()

    # -- faults ------------------------------------------------------------------------------

    def fault(self) -> None:
        """Do one of the faults, and wait until all is well again."""
        name, act = self.dice.choice(FAULTS)
        self.measured.faults[name] += 1
        print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
        act(self)
        self.settle(name)

    def settle(self, after: str) -> None:
        """Pause the writers; every stream table comes to be ACTIVE and exactly what PostgreSQL
        answers.
        """
        began = time.monotonic()
        self.writers.pause()
        with connect(self.server.dsn) as conn:
            [(moment,)] = conn.execute("SELECT clock_timestamp()").fetchall()
            late = (
                "SELECT name, status, last_error FROM millstream.stream_tables"
                " WHERE data_timestamp <= %s OR status <> 'ACTIVE'"
            )
            deadline = time.monotonic() + PATIENCE
            while rows := conn.execute(late, (moment,)).fetchall():
                assert time.monotonic() < deadline, (
                    f"not caught up after {after}: {rows}\n{self._sessions(conn)}"
                )
                time.sleep(0.1)
            self.measured.recovered.append(time.monotonic() - began)
            with conn.transaction():
                conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                for name, query in QUERIES.items():
                    try:
                        oracle.check(conn, query, f"public.{name}")
                    except AssertionError as error:
                        error.add_note(f"after {after}: {name}")
                        raise
        self.writers.go_on()

    def _sessions(self, conn: psycopg.Connection) -> str:
        """Return what the sessions of the services do; and have these print where their threads
        are.
        """
        for service in self._services:
            if service.popen.poll() is None:
                service.popen.send_signal(signal.SIGUSR1)
        query = (
            "SELECT application_name, pid, state, wait_event, pg_blocking_pids(pid), left(query, 200)"
            " FROM pg_stat_activity WHERE application_name LIKE 'millstream%'"
        )
        time.sleep(1.0)
        return "\n".join(map(str, conn.execute(query)))

    def _leader(self) -> Running:
        pid = wait_for_leader(self.server.dsn)
        return next(one for one in self._services if one.pid == pid)

    def _standby(self) -> Running | None:
        pid = wait_for_leader(self.server.dsn)
        return next(
            (one for one in self._services if one.pid != pid and one.popen.poll() is None), None
        )

    def kill_leader(self) -> None:
        """Its successor takes over; another standby comes."""
        self._leader().kill()
        self._start_service()

    def hang_leader(self) -> None:
        """Stop it for longer than the standby waits; awake again it finds itself deposed."""
        leader = self._leader()
        leader.popen.send_signal(signal.SIGSTOP)
        try:
            wait_for_leader(self.server.dsn, other_than=leader.pid)
        finally:
            leader.popen.send_signal(signal.SIGCONT)

    def kill_standby(self) -> None:
        """Nothing happens."""
        if (standby := self._standby()) is not None:
            standby.kill()
        self._start_service()

    def stop_leader(self) -> None:
        """In order, as for an upgrade."""
        assert self._leader().stop() == 0
        self._start_service()

    def kill_java(self) -> None:
        """Spark is started again."""
        for pid in children(self._leader().pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "java":
                    os.kill(pid, signal.SIGKILL)

    def crash_server(self) -> None:
        """It recovers from its log."""
        self.server.kill()
        self.server.start()

    def restart_server(self) -> None:
        """All sessions are ended."""
        self.server.halt()
        self.server.start()

    def end_sessions(self) -> None:
        """Some of the service's, whatever they are doing."""
        with psycopg.connect(self.server.dsn, autocommit=True) as conn:
            query = (
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
                " WHERE application_name LIKE 'millstream%%' ORDER BY random() LIMIT %s) AS chosen"
            )
            for _ in range(5):
                conn.execute(query, (self.dice.randint(1, 4),))
                time.sleep(self.dice.random() / 2)

    def lock_source(self) -> None:
        """Somebody holds a lock for longer than a refresh waits."""
        with psycopg.connect(self.server.dsn) as conn:
            conn.execute(
                f"LOCK TABLE s{self.dice.choice(SOURCES)} IN ACCESS EXCLUSIVE MODE".encode()
            )
            time.sleep(2.0)

    def alter_source(self) -> None:
        """A schema change under load, in one transaction or statement by statement."""
        statements = self.dice.choice(DDL).split("; ")
        with psycopg.connect(self.server.dsn, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement.encode())
                time.sleep(self.dice.choice((0.0, 0.5, 2.0)))


FAULTS: tuple[tuple[str, Callable[[Soak], None]], ...] = (
    ("leader killed", Soak.kill_leader),
    ("leader hung", Soak.hang_leader),
    ("leader stopped", Soak.stop_leader),
    ("standby killed", Soak.kill_standby),
    ("Java killed", Soak.kill_java),
    ("server crashed", Soak.crash_server),
    ("server restarted", Soak.restart_server),
    ("sessions ended", Soak.end_sessions),
    ("source locked", Soak.lock_source),
    ("source altered", Soak.alter_source),
    ("source altered", Soak.alter_source),
)
