"""Read the server's lock table: its size, how much of it is free, and how many locks a relation
takes.

PostgreSQL has room for max_locks_per_transaction locks for each connection and each prepared
transaction, in one table that all sessions share. A transaction keeps its locks until it ends, so
one that uses many relations can fill the table, and then every session's next lock fails with "out
of shared memory".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.postgres", "lock_table.sql")


@dataclass(frozen=True)
class LockTable:
    """The lock table at one moment."""

    per_transaction: int
    """max_locks_per_transaction"""
    transactions: int
    """max_connections and max_prepared_transactions"""
    held: int = 0
    """The locks of other sessions, where they have been counted."""

    @property
    def capacity(self) -> int:
        return self.per_transaction * self.transactions

    def room(self, share: float) -> int:
        """Return how many locks one of our transactions may hold: this share of the free ones."""
        return int(max(0, self.capacity - self.held) * share)

    def setting_for(self, locks: int, share: float) -> int:
        """Return the max_locks_per_transaction that would leave room for this number."""
        return -int(-(locks / share + self.held) // self.transactions)


def empty(conn: Connection) -> LockTable:
    """Return the lock table as if no other session held a lock."""
    return LockTable(*conn.execute(_SQL["size"]).fetchall()[0])


def read(conn: Connection) -> LockTable:
    """Read the lock table as it is now."""
    held: int = conn.execute(_SQL["held"]).fetchall()[0][0]
    return replace(empty(conn), held=held)


def weights(conn: Connection, oids: Sequence[int], names: Sequence[str]) -> dict[int | str, int]:
    """Return, by oid or name, the locks that a refresh takes on a relation: itself, its indexes,
    its TOAST table.
    """
    rows = conn.execute(_SQL["weights"], (list(oids), list(names))).fetchall()
    return {name if oid is None else oid: locks for oid, name, locks in rows}
