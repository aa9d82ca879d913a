"""A small shop with live traffic, for the demo and for tests.

    customers 1-n orders 1-n order_lines n-1 products

`open_shop` makes the tables and some history; `Traffic` is a thread that goes on buying, paying,
shipping, correcting and cancelling, and that now and then changes its mind and rolls back.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

import psycopg

from millstream.postgres.connection import Connection, connect
from millstream.postgres.sql_files import load

SQL = load("millstream.bundled", "shop.sql")

# How often each event happens, per hundred.
EVENTS: Mapping[str, int] = {
    "place_order": 50,
    "move_on": 25,
    "change_quantity": 12,
    "cancel_order": 7,
    "change_price": 4,
    "move_customer": 2,
}
ROLLED_BACK = 0.08


@dataclass(frozen=True)
class Size:
    """How large the shop is when it opens."""

    customers: int = 1_000
    products: int = 200
    orders: int = 20_000


def open_shop(conn: Connection, size: Size) -> None:
    """Make the shop's tables, with some history in them."""
    numbers = {"customers": size.customers, "products": size.products, "orders": size.orders}
    with conn.transaction():
        conn.execute(SQL["tables"])
        for step in ("customers", "products", "orders", "order_lines"):
            conn.execute(SQL[step], numbers)
    conn.execute(SQL["statistics"])


def rows_by_table(conn: Connection) -> dict[str, int]:
    """Return the number of rows in each of the shop's tables."""
    return dict(conn.execute(SQL["sizes"]).fetchall())


@dataclass(frozen=True)
class Count:
    """What the traffic has done so far."""

    committed: int = 0
    rolled_back: int = 0
    rows: int = 0


@dataclass
class Traffic:
    """Customers and clerks at work, `rate` transactions a second, from `start` to `stop`."""

    dsn: str
    size: Size
    rate: float = 25.0
    seed: int | None = None
    count: Count = Count()
    _ended: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)
    _thread: Thread | None = None
    _trouble: BaseException | None = None

    def start(self) -> None:
        """Let the traffic begin."""
        self._thread = Thread(target=self._work, name="traffic", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; an error of the writer is raised here, not lost."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._trouble is not None:
            raise self._trouble

    def _work(self) -> None:
        dice = random.Random(self.seed)
        try:
            with connect(self.dsn, application_name="shop") as conn:
                while not self._ended.wait(dice.expovariate(self.rate)):
                    self._transaction(conn, dice)
        except BaseException as error:  # It is raised again where the thread is joined.
            self._trouble = error

    def _transaction(self, conn: Connection, dice: random.Random) -> None:
        """Run one transaction of one to three events, committed or rolled back."""
        regret, rows = dice.random() < ROLLED_BACK, 0
        with conn.transaction():
            for event in dice.choices(
                list(EVENTS), list(EVENTS.values()), k=dice.choice((1, 1, 2, 3))
            ):
                rows += self._happens(conn, event, dice)
            if regret:
                raise psycopg.Rollback
        self._add(committed=not regret, rows=rows)

    def _happens(self, conn: Connection, event: str, dice: random.Random) -> int:
        numbers = {
            "customers": self.size.customers,
            "products": self.size.products,
            "lines": dice.randint(1, 4),
        }
        return conn.execute(SQL[event], numbers).rowcount

    def _add(self, *, committed: bool, rows: int) -> None:
        with self._lock:
            was = self.count
            self.count = (
                Count(was.committed + 1, was.rolled_back, was.rows + rows)
                if committed
                else Count(was.committed, was.rolled_back + 1, was.rows)
            )
