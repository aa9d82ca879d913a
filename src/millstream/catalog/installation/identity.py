"""The identity of an installation: the database and the server in which its catalog was created.

The catalog identifies tables by oid. In a database that was restored from a dump the same oids
belong to other tables, and a copy of a database has the name of the original's slot. There
Millstream would drop and write objects that are not its own. So three things are recorded at
install and compared at the start of every command:

                        pg_dump, pg_restore    CREATE DATABASE ... TEMPLATE    pg_upgrade    copy of the files
    system identifier   another                the same                        another       the same
    oid of the database another, mostly        another                         the same      the same
    oids of our tables  others                 the same                        the same      the same

A copy of the files (a base backup, a promoted standby, a snapshot of the disk) is the same database
in every respect, oids and transaction ids included. Only the slot is missing, which is handled as a
lost slot.

If the role may not read the system identifier, the other two decide. A restore creates the five
tables in another order, so their oids differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import OtherDatabase
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.installation", "identity.sql")


@dataclass(frozen=True)
class Identity:
    """What identifies a database."""

    system_identifier: str | None
    database_oid: int | None
    catalog_oids: tuple[int, ...] | None

    def differences(self, now: Identity) -> list[str]:
        """Return the differences from the recorded identity, in words."""
        if self.database_oid is None:
            return ["no identity is recorded"]
        found = []
        if (
            self.system_identifier
            and now.system_identifier
            and self.system_identifier != now.system_identifier
        ):
            found.append(
                f"the server's identifier was {self.system_identifier} and is {now.system_identifier}"
            )
        if self.database_oid != now.database_oid:
            found.append(f"the database's oid was {self.database_oid} and is {now.database_oid}")
        if self.catalog_oids != now.catalog_oids:
            found.append("the catalog's own tables have other oids")
        return found


def check(conn: Connection) -> None:
    """Raise OtherDatabase unless the catalog was created in this database."""
    recorded, now = _identities(conn)
    if found := recorded.differences(now):
        raise OtherDatabase.because(conn.info.dbname, found)


def record(conn: Connection) -> None:
    """Record that the catalog belongs to this database."""
    _, now = _identities(conn)
    conn.execute(
        _SQL["record"], (now.system_identifier, now.database_oid, list(now.catalog_oids or ()))
    )


def record_if_intact(conn: Connection) -> bool:
    """Record the identity for a catalog of a version without identities, if every oid in it still
    has its recorded name.
    """
    is_parted: bool = conn.execute(_SQL["parted"]).fetchall()[0][0]
    if not is_parted:
        record(conn)
    return not is_parted


def _identities(conn: Connection) -> tuple[Identity, Identity]:
    """Return the recorded identity, and that of this database."""
    system, database, oids, database_now, oids_now, may_ask = conn.execute(
        _SQL["identities"]
    ).fetchall()[0]
    # A separate statement, since it fails if the role may not call the function.
    system_now = conn.execute(_SQL["system_identifier"]).fetchall()[0][0] if may_ask else None
    return (
        Identity(system, database, tuple(oids) if oids is not None else None),
        Identity(system_now, database_now, tuple(oids_now)),
    )
