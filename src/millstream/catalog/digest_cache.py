"""Tell cheaply that nothing under a stream table has changed since it was last looked at.

Whether capture is whole and the plan still holds takes several questions, and the answer is nearly always the same.
All that they look at is rows of the server's catalog. So a table that was found sound is remembered with a print of
those rows' versions, and while the print is the same, read in the cut like all else, so is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from millstream.catalog.definition_digests import Digests, Kind
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

Object = tuple[Literal["relation", "function", "type", "roles"], int]

_SQL = load("millstream.catalog", "digest_cache.sql")


class DigestCache:
    """The stream tables that were found sound, each with the plan's grounds and the prints of that moment."""

    def __init__(self) -> None:
        self._sound: dict[int, tuple[Digests, Mapping[Object, str]]] = {}

    def forget(self) -> None:
        """Forget all of them: this may be another server."""
        self._sound.clear()

    def holds(self, stream_table_id: int, planned: Digests, prints: Mapping[Object, str]) -> bool:
        """Is everything as it was when the table was found sound, with the same plan?"""
        return self._sound.get(stream_table_id) == (planned, prints)

    def keep(self, stream_table_id: int, planned: Digests, prints: Mapping[Object, str]) -> None:
        self._sound[stream_table_id] = (planned, prints)


def version_stamps(conn: Connection, planned: Mapping[int, Digests]) -> dict[int, dict[Object, str]]:
    """By id of a stream table, the prints of what its plan stands on; one query for all."""
    objects = {id: {_ROLES, *(_object(kind, oid) for kind, oid in own)} for id, own in planned.items()}
    found = _prints(conn, set().union(*objects.values()))
    return {id: {one: found[one] for one in own} for id, own in objects.items()}


# Who is a superuser, and who is a member of whom: decides what an owner may read, and whose code is trusted.
_ROLES: Object = ("roles", 0)


def _object(kind: Kind, oid: int) -> Object:
    if kind == "function":
        return "function", oid
    if kind in ("type", "name"):
        return "type", oid
    return "relation", oid


def _prints(conn: Connection, objects: Iterable[Object]) -> dict[Object, str]:
    asked = list(objects)
    rows = conn.execute(_SQL["prints"], ([kind for kind, _ in asked], [oid for _, oid in asked]))
    return {(kind, oid): text for kind, oid, text in rows}
