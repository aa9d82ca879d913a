"""Writers: many sessions at once that do to a few tables whatever applications do, each from a
seed.

    transactions     of one to eight steps, from no time to some seconds long, at READ COMMITTED and REPEATABLE READ
    steps            INSERT, UPDATE, DELETE, MERGE, ON CONFLICT, COPY, keys that change, some of several equal rows
    savepoints       nested, kept or rolled back to, also because a step failed
    ends             COMMIT, ROLLBACK, PREPARE TRANSACTION and, later, COMMIT PREPARED or ROLLBACK PREPARED
    now and then     TRUNCATE, refilled in the same transaction or left empty, committed or rolled back

`VIEWS` are queries over these tables, one of each kind. What a writer does is decided by its seed;
how the writers interleave is not, and no result may depend on it.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self

from psycopg import ClientCursor, errors

from millstream.postgres.connection import Connection, connect
from millstream.postgres.sql_files import load

SQL = load("millstream.testing", "writers.sql")

CUSTOMERS, ORDERS, PAGES = 60, 2_000, 20

VIEWS: Mapping[str, str] = {
    # A join and an aggregate.
    "totals": "SELECT c.region, count(*) AS orders, sum(o.amount) AS total, avg(o.amount) AS mean "
    "FROM orders AS o JOIN customers AS c ON c.id = o.customer GROUP BY c.region",
    # A bag: no key, equal rows.
    "visited": "SELECT page, seconds FROM visits WHERE seconds IS NULL OR seconds < 4",
    # Extremes: a row that goes may have been the least or the most of its group.
    "extremes": "SELECT customer, min(amount) AS least, max(amount) AS most, max(note) AS last "
    "FROM orders GROUP BY customer",
}

# How often each step is taken, per hundred.
STEPS: Mapping[str, int] = {
    "insert_orders": 16,
    "upsert_orders": 9,
    "merge_orders": 4,
    "change_amounts": 14,
    "move_orders": 7,
    "change_order_key": 8,
    "delete_orders": 8,
    "change_customer_key": 3,
    "move_customer": 3,
    "insert_customer": 3,
    "insert_visits": 8,
    "lengthen_visits": 5,
    "blur_visits": 4,
    "delete_visits": 5,
    "copy_visits": 3,
}
# The longest pause between two steps of a transaction, in seconds, and how often.
PACES: Mapping[float, int] = {0.0: 60, 0.05: 30, 0.5: 8, 1.5: 2}
# For what needs a lock that writers hold: no transaction is long.
SHORT: Mapping[float, int] = {0.0: 80, 0.02: 20}
ENDS: Mapping[str, int] = {"commit": 70, "rollback": 12, "prepare": 18}
SAVEPOINT = 0.2
# A TRUNCATE that did not get its lock is tried again after so many seconds.
TRUNCATE_AGAIN = 4.0

# What writers may do to each other; anything else is a fault of what stands between them and their
# tables.
QUARRELS = (
    errors.UniqueViolation,
    errors.CardinalityViolation,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
    errors.SerializationFailure,
)


def make_tables(conn: Connection) -> None:
    """Create the writers' tables, with some rows in them."""
    conn.execute(SQL["tables"])
    # Bound by the client: a prepared statement could not hold several.
    ClientCursor(conn).execute(SQL["rows"], {"customers": CUSTOMERS, "orders": ORDERS})


@dataclass
class Writers:
    """Sessions at work from entering to leaving a `with` block; an error that is none of theirs is
    raised there.
    """

    dsn: str
    seed: int = 0
    count: int = 16
    truncate_every: float = 5.0
    """Seconds from one TRUNCATE to the next; 0 for never."""
    steps: Mapping[str, int] = field(default_factory=lambda: STEPS)
    paces: Mapping[float, int] = field(default_factory=lambda: PACES)
    done: Counter[str] = field(default_factory=Counter)
    """How often each thing was done, by all of them."""

    def __post_init__(self) -> None:
        self._ended = Event()
        self._lock = Lock()
        self._troubles: list[BaseException] = []
        self._threads: list[Thread] = []
        self._truncate_at = time.monotonic() + self.truncate_every

    def __enter__(self) -> Self:
        for number in range(self.count):
            self._threads.append(
                Thread(target=self._work, args=(number,), name=f"writer {number}", daemon=True)
            )
            self._threads[-1].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self._troubles and error is None:
            raise self._troubles[0]

    def _work(self, number: int) -> None:
        try:
            with connect(self.dsn, application_name=f"writer {number}") as conn:
                writer = Writer(conn, random.Random(f"{self.seed}/{number}"), number, self)
                while not self._ended.is_set():
                    writer.transaction()
        except BaseException as error:  # It is raised again where the threads are joined.
            self._troubles.append(error)

    # -- what the writers share --------------------------------------------------------------

    def note(self, what: str, times: int = 1) -> None:
        """Count what was done."""
        with self._lock:
            self.done[what] += times

    def rest(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        if seconds > 0:
            self._ended.wait(seconds)

    def claim_truncate(self) -> bool:
        """Return True if a TRUNCATE is due, and leave it to the caller."""
        with self._lock:
            due = self.truncate_every > 0 and time.monotonic() >= self._truncate_at
            if due:
                self._truncate_at = time.monotonic() + TRUNCATE_AGAIN
            return due

    def truncated(self) -> None:
        """Note that the TRUNCATE was done: the next one is due later."""
        with self._lock:
            self._truncate_at = time.monotonic() + self.truncate_every


@dataclass
class Writer:
    """One session."""

    conn: Connection
    dice: random.Random
    number: int
    all: Writers
    pace: float = 0.0
    prepared: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        self.cursor = ClientCursor(self.conn)
        # Below the server's deadlock_timeout: most waits end here, quickly.
        self.conn.execute("SET lock_timeout = '400ms'")

    def transaction(self) -> None:
        """Run one transaction, from its beginning to its end, and rest shortly."""
        try:
            if self.all.claim_truncate():
                self._truncating()
            else:
                self._writing()
        except QUARRELS as error:
            self.conn.execute("ROLLBACK")
            self.all.note(type(error).__name__)
        self.all.rest(self.dice.expovariate(8.0))

    # -- ordinary transactions ---------------------------------------------------------------

    def _writing(self) -> None:
        self.pace = self._chosen(self.all.paces)
        isolation = "REPEATABLE READ" if self.dice.random() < 0.2 else "READ COMMITTED"
        self._run(f"BEGIN ISOLATION LEVEL {isolation}")
        self._several(self.dice.randint(1, 8))
        ENDINGS[self._chosen(ENDS)](self)

    def _several(self, steps: int) -> None:
        for _ in range(steps):
            if self.depth < 3 and self.dice.random() < SAVEPOINT:
                self._savepoint()
            else:
                self._step(self._chosen(self.all.steps))
            self.all.rest(self.dice.uniform(0, self.pace))

    def _savepoint(self) -> None:
        """Run some steps under a savepoint, which is kept or rolled back, also if one of them
        fails.
        """
        with self._deeper() as name:
            self._run(f"SAVEPOINT {name}")
            try:
                self._several(self.dice.randint(1, 3))
                undo = self.dice.random() < 0.5
            except QUARRELS as error:
                self.all.note(type(error).__name__)
                undo = True
            self._run(f"ROLLBACK TO {name}" if undo else f"RELEASE {name}")
            self.all.note("rolled back to savepoint" if undo else "savepoint released")

    @contextmanager
    def _deeper(self) -> Iterator[str]:
        self.depth += 1
        try:
            yield f"s{self.depth}"
        finally:
            self.depth -= 1

    def _step(self, name: str) -> None:
        if name == "copy_visits":
            self._copy()
        else:
            self.cursor.execute(SQL[name], self._values())
        self.all.note(name)

    def _copy(self) -> None:
        with self.cursor.copy(SQL["copy_visits"]) as copy:
            for _ in range(self.dice.randint(1, 20)):
                copy.write_row(
                    (f"page {self.dice.randrange(PAGES)}", self.dice.choice((None, 0, 1, 1, 1, 4)))
                )

    # A statement takes from these what it needs: values of any type.
    def _values(self) -> dict[str, Any]:
        return {
            "order": self.dice.randint(1, ORDERS), "other": self.dice.randint(1, ORDERS),
            "few": self.dice.randint(1, 8), "customer": self.dice.randint(1, CUSTOMERS),
            "key": self.dice.randint(1, CUSTOMERS + 20),
            "amount": self.dice.choice((None, *(self.dice.randrange(100_000) / 100 for _ in range(9)))),
            "page": f"page {self.dice.randrange(PAGES)}", "customers": CUSTOMERS, "orders": ORDERS,
        }  # fmt: skip

    # -- how they end ------------------------------------------------------------------------

    def commit(self) -> None:
        self._run("COMMIT")
        self.all.note("committed")

    def roll_back(self) -> None:
        self._run("ROLLBACK")
        self.all.note("rolled back")

    def prepare(self) -> None:
        """Commit in two phases; whatever happens between them, the second one comes."""
        self.prepared += 1
        gid = f"writer {self.all.seed} {self.number} {self.prepared}"
        self._run(f"PREPARE TRANSACTION '{gid}'")
        self.all.rest(self.dice.uniform(0, 4 * self.pace))
        end = "ROLLBACK" if self.dice.random() < 0.3 else "COMMIT"
        self._run(f"{end} PREPARED '{gid}'")
        self.all.note(f"{end.lower()} prepared")

    # -- TRUNCATE ----------------------------------------------------------------------------

    def _truncating(self) -> None:
        table = self.dice.choice(("orders", "visits"))
        self._run("BEGIN")
        # It waits for every transaction that has touched the table, and all later ones wait for it.
        self._run("SET LOCAL lock_timeout = '3s'")
        self.cursor.execute(SQL[f"truncate_{table}"])
        if self.dice.random() < 0.6:
            self.cursor.execute(SQL[f"refill_{table}"], self._values())
        kept = self.dice.random() < 0.75
        self._run("COMMIT" if kept else "ROLLBACK")
        self.all.truncated()
        self.all.note("truncated" if kept else "truncation rolled back")

    # -- small things ------------------------------------------------------------------------

    def _run(self, statement: str) -> None:
        self.conn.execute(statement.encode())

    def _chosen(self, weights: Mapping[Any, int]) -> Any:
        return self.dice.choices(list(weights), list(weights.values()))[0]


ENDINGS: Mapping[str, Callable[[Writer], None]] = {
    "commit": Writer.commit,
    "rollback": Writer.roll_back,
    "prepare": Writer.prepare,
}
