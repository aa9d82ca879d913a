"""Digests of the definitions that a query depends on: names and files of its sources, views,
functions, types, keys.

A view or function can be replaced, a table rewritten or exchanged for another of its name, an enum
label renamed. Capture sees no changed row in these cases. So each plan has the digests of all
definitions under its query, computed before planning, and the catalog has the digests with which
the stored rows were computed. One query in the cut compares both:

    differs from the plan      the plan is stale: plan again
    differs from the record    the rows are stale: compute them in full, apply the difference
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

Kind = Literal[
    "table", "storage", "key", "view", "function", "type", "name", "target", "shape", "triggers"
]

# Kind and oid -> digest; None for an object that does not exist.
Digests = dict[tuple[Kind, int], str | None]

_SQL = load("millstream.catalog.definitions", "definition_digests.sql")


@dataclass(frozen=True)
class Change:
    """A definition under a stream table that has changed."""

    stream_table_id: int
    kind: Kind
    oid: int
    digest: str | None
    """The present digest."""
    is_planned_otherwise: bool
    is_recorded_otherwise: bool


def digests_under(conn: Connection, view: int) -> Digests:
    """Return the present digests of everything that a view depends on."""
    found: list[tuple[Kind, int]] = conn.execute(_SQL["under"], {"view": view}).fetchall()
    tables = [oid for kind, oid in found if kind == "table"]
    found += [("key", oid) for oid in tables]
    found += [("name", oid) for kind, oid in found if kind == "type"]
    found += [
        ("storage", oid)
        for root, below in relations.partitions(conn, tables).items()
        for oid in (root, *below)
    ]
    return _now(conn, found)


def digests_of_target(conn: Connection, relid: int) -> Digests:
    """Return the present digests of what users can alter of a stream table's own table."""
    return _now(conn, [("shape", relid), ("triggers", relid)])


def _now(conn: Connection, objects: Sequence[tuple[Kind, int]]) -> Digests:
    unknown: Digests = dict.fromkeys(objects)
    return unknown | {
        (change.kind, change.oid): change.digest
        for change in changed_definitions(conn, {0: unknown})
    }


def changed_definitions(conn: Connection, planned: Mapping[int, Digests]) -> list[Change]:
    """Return every definition that differs from the plan or from the record; `planned` is by id of
    the stream table.
    """
    rows = [
        (id, kind, oid, digest)
        for id, own in planned.items()
        for (kind, oid), digest in own.items()
    ]
    return [
        Change(*row)
        for row in conn.execute(_SQL["changed"], [[row[n] for row in rows] for n in range(4)])
    ]


def recorded(conn: Connection, stream_table_ids: Sequence[int]) -> dict[int, Digests]:
    """Return, by id of the stream table, the digests with which its rows were last computed in
    full.
    """
    found: dict[int, Digests] = {id: {} for id in stream_table_ids}
    for id, kind, oid, digest in conn.execute(_SQL["recorded"], (list(stream_table_ids),)):
        found[id][kind, oid] = digest
    return found


def record(conn: Connection, stream_table_id: int, planned: Digests) -> None:
    """Record that the rows of a stream table were computed in full with these digests."""
    kept = [
        (kind, oid, digest)
        for (kind, oid), digest in planned.items()
        if kind not in ("key", "target", "name")
    ]
    conn.execute(_SQL["forget"], (stream_table_id,))
    conn.execute(_SQL["record"], (stream_table_id, *([row[n] for row in kept] for n in range(3))))


def record_target(conn: Connection, stream_table_id: int, now: Digests) -> None:
    """Record the digests of a stream table's own table after Millstream itself has altered it."""
    for (kind, oid), digest in now.items():
        conn.execute(_SQL["record_target"], (digest, stream_table_id, kind, oid))


def follow_names(conn: Connection, stream_table_id: int, relids: Sequence[int]) -> None:
    """Record that these tables were only renamed, so that their rows are not computed again."""
    conn.execute(_SQL["follow_names"], (stream_table_id, list(relids)))


# -- reasons ---------------------------------------------------------------------------------

# Reason codes of a full computation, in the order of precedence.
REASONS: Mapping[Kind, str] = {
    "table": "SOURCE_REPLACED",
    "view": "VIEW_REPLACED",
    "function": "FUNCTION_REPLACED",
    "type": "TYPE_CHANGED",
    "storage": "SOURCE_REWRITTEN",
    "shape": "TABLE_ALTERED",
    "triggers": "TRIGGERS_CHANGED",
}


def reason(changes: Sequence[Change]) -> str:
    """Return the reason code of a full computation; "" if none is needed."""
    kinds = {change.kind for change in changes if change.is_recorded_otherwise}
    return next((code for kind, code in REASONS.items() if kind in kinds), "")
