"""The verbs install and uninstall: the catalog comes into a database, and everything goes out again."""

from __future__ import annotations

from millstream.catalog import install as catalog
from millstream.store.connection import Connection


def install(conn: Connection) -> int:
    """Install the catalog, or bring it up to date; return its version."""
    return catalog.install(conn)


def uninstall(conn: Connection, *, cascade: bool = False) -> None:
    """Remove triggers, stream tables, catalog and state; with `cascade`, what users built on stream tables too."""
    catalog.uninstall(conn, cascade=cascade)
