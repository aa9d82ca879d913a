"""Changes of the TPC-H tables, of any size, from a seed: the refresh functions and random ones.

    RF1      new orders with their lines            RF2      as many old orders go, with theirs
    random   updates, inserts and deletes of all eight tables, with the values that the queries ask for

A share of 0.001 is the specification's: RF1 and RF2 turn over a thousandth of the orders, and about
as large a part of each table changes at random. What goes takes along what refers to it, so foreign
keys hold all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load
from millstream.testing.tpch.load import sizes

SQL = load("millstream.testing.tpch", "changes.sql")


@dataclass(frozen=True)
class Step:
    """One statement of the random changes."""

    name: str
    part: float
    """Of the table's share, how much it changes."""

    @property
    def table(self) -> str:
        return self.name.split("_")[1]


# What is deleted takes about four times its share of the lines with it, so it is the smallest part.
STEPS: Sequence[Step] = (
    Step("update_lineitem", 0.5),
    Step("move_lineitem", 0.2),
    Step("fill_lineitem", 0.01),
    Step("insert_lineitem", 0.1),
    Step("delete_lineitem", 0.1),
    Step("update_orders", 0.9),
    Step("delete_orders", 0.1),
    Step("update_customer", 0.7),
    Step("insert_customer", 0.2),
    Step("delete_customer", 0.1),
    Step("update_part", 0.7),
    Step("insert_part", 0.2),
    Step("delete_part", 0.1),
    Step("update_partsupp", 0.7),
    Step("insert_partsupp", 0.2),
    Step("delete_partsupp", 0.1),
    Step("update_supplier", 0.7),
    Step("insert_supplier", 0.2),
    Step("delete_supplier", 0.1),
)
# Nations and regions are few: one comment of each always changes, which no query shows.
ALWAYS: Sequence[str] = ("update_nation", "update_region")
# These change much at once: only where every kind is wanted. Going comes before coming, so that
# keys are used again.
WIDE: Sequence[str] = (
    "delete_nation",
    "delete_region",
    "swap_nation",
    "swap_region",
    "insert_region",
    "insert_nation",
    "move_nation",
)


@dataclass
class TpchChanges:
    """Changes the tables, one cycle after the other."""

    conn: Connection
    share: float = 0.001
    seed: int = 1
    every: bool = False
    """At least one change of every kind in every table, however small the share; nations and
    regions too.
    """
    turned: int = 0
    """How many orders the refresh functions have turned over."""
    thrown: int = 0
    log: dict[str, int] = field(default_factory=dict)
    """The rows each statement of the last cycle changed, without those that went along."""

    def __post_init__(self) -> None:
        self.sizes = sizes(self.conn)
        self.conn.execute(SQL["functions"])

    def cycle(self) -> None:
        """RF1, RF2 and random changes of all tables, each in a transaction of its own."""
        self.log.clear()
        first = self.turned + 1
        self.turned += max(1, round(self.share * self.sizes["orders"]))
        for function in ("rf1", "rf2"):
            with self.conn.transaction():
                self._run(function, first=first, last=self.turned)
        with self.conn.transaction():
            self._at_random()

    def _at_random(self) -> None:
        for step in STEPS:
            rows = round(self.share * step.part * self.sizes[step.table])
            if rows or self.every:
                self._run(step.name, rows=max(1, rows))
        for name in (*ALWAYS, *(WIDE if self.every else ())):
            self._run(name)

    def _run(self, name: str, **numbers: int) -> None:
        self.thrown += 1
        done = self.conn.execute(
            SQL[name], {"seed": self.seed * 1_000_000 + self.thrown, **numbers}
        )
        self.log[name] = done.rowcount
