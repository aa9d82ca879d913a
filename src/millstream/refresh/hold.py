"""Hold the sources before the cut is taken, so that none is emptied under it.

TRUNCATE, and ALTER TABLE where it rewrites, keep no old rows for old snapshots: a table truncated after the cut
reads as empty in it, although the cut's snapshot does not see the TRUNCATE. An ACCESS SHARE lock keeps them out
until the cut ends, and nobody else: readers and writers go on.

    lock .. snapshot .. TRUNCATE waits .. read, apply, commit .. TRUNCATE .. next cut: a T is in the slice

Whoever has truncated and not yet committed keeps us waiting. Each wait is shorter than the server's
deadlock_timeout, and what was held already is given back after it: of two that wait for each other it is we
who give way. A source that is not to be had goes without its readers; the others are refreshed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import errors, sql

from millstream.catalog.relations import Name
from millstream.store.connection import Connection

# Waits for all sources together, before each is asked for by itself.
TRIES = 4
LOCK_TIMEOUT = "500ms"


def names(conn: Connection, oids: Iterable[int]) -> list[Name]:
    """What these tables are called now; those that were dropped are left out."""
    query = (
        "SELECT c.oid::int8, n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE c.oid = ANY(%s::oid[]) ORDER BY c.oid"
    )
    return [Name(*row) for row in conn.execute(query, (sorted(set(oids)),))]


def hold(conn: Connection, tables: Sequence[Name]) -> frozenset[Name]:
    """Lock them in the open transaction, before its snapshot is taken; return those that were not to be had."""
    if not tables or any(_locked(conn, tables) for _ in range(TRIES)):
        return frozenset()
    return frozenset(table for table in tables if not _locked(conn, [table]))


def _locked(conn: Connection, tables: Sequence[Name]) -> bool:
    listed = sql.SQL(", ").join(table.identifier for table in tables)
    try:
        # A savepoint: what was had is given back when the rest is not to be had.
        with conn.transaction():
            conn.execute(_LOCK.format(timeout=sql.Literal(LOCK_TIMEOUT), tables=listed), prepare=False)
    except (errors.LockNotAvailable, errors.UndefinedTable):
        # Undefined: renamed or dropped since it was asked for its name.
        return False
    return True


# No statement here takes a snapshot; a SELECT would.
_LOCK = sql.SQL(
    "SET LOCAL lock_timeout = {timeout}; LOCK TABLE {tables} IN ACCESS SHARE MODE; SET LOCAL lock_timeout TO DEFAULT"
)
