"""Cache of pre-flight checks: skip them while nothing under a stream table has changed.

Several queries check that capture is complete and that the plan is still valid, and the result is
nearly always the same. All of them read rows of the system catalogs. So the cache has, for each
stream table that passed the checks, the version stamps (ctid and xmin) of these rows. The cut reads
the stamps again; if they are equal, the result is too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from millstream.catalog.definitions.definition_digests import Digests, Kind
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

Object = tuple[Literal["relation", "function", "type", "roles"], int]

_SQL = load("millstream.catalog.definitions", "digest_cache.sql")


class DigestCache:
    """The stream tables that passed the checks, each with its plan's digests and the version stamps
    at that time.
    """

    def __init__(self) -> None:
        self._sound: dict[int, tuple[Digests, Mapping[Object, str]]] = {}

    def forget(self) -> None:
        """Clear the cache: the next connection may be to another server."""
        self._sound.clear()

    def holds(self, stream_table_id: int, planned: Digests, stamps: Mapping[Object, str]) -> bool:
        """Return True if plan and version stamps are equal to those with which the stream table
        passed the checks.
        """
        return self._sound.get(stream_table_id) == (planned, stamps)

    def keep(self, stream_table_id: int, planned: Digests, stamps: Mapping[Object, str]) -> None:
        """Record that a stream table passed the checks."""
        self._sound[stream_table_id] = (planned, stamps)


def version_stamps(
    conn: Connection, planned: Mapping[int, Digests]
) -> dict[int, dict[Object, str]]:
    """Return the version stamps of the objects under each plan, by id of the stream table, with one
    query.
    """
    objects = {
        id: {_ROLES, *(_object(kind, oid) for kind, oid in own)} for id, own in planned.items()
    }
    stamps = _stamps(conn, set().union(*objects.values()))
    return {id: {object: stamps[object] for object in own} for id, own in objects.items()}


# Superusers and role memberships decide what an owner may read, and whose code is trusted.
_ROLES: Object = ("roles", 0)


def _object(kind: Kind, oid: int) -> Object:
    if kind == "function":
        return "function", oid
    if kind in ("type", "name"):
        return "type", oid
    return "relation", oid


def _stamps(conn: Connection, objects: Iterable[Object]) -> dict[Object, str]:
    wanted = list(objects)
    rows = conn.execute(
        _SQL["version_stamps"], ([kind for kind, _ in wanted], [oid for _, oid in wanted])
    )
    return {(kind, oid): stamp for kind, oid, stamp in rows}
