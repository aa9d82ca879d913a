"""What a stream table stands on besides rows: its sources' names and files, views, functions, types, keys.

A view or a function can be replaced, a table rewritten or swapped for another of its name, a label renamed, and
no row changes for capture to see. So each plan holds a digest of everything under its query, taken before it was
made, and the catalog holds those that the stored rows were computed with. One question at the cut compares both:

    not as planned     the plan is stale: make it again
    not as recorded    the rows are stale: compute them whole, apply the difference
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

Kind = Literal["table", "storage", "key", "view", "function", "type", "name", "target", "shape", "triggers"]

# Kind and oid -> digest; None for one that is not there.
Digests = dict[tuple[Kind, int], str | None]

_SQL = load("millstream.catalog", "definition_digests.sql")


@dataclass(frozen=True)
class Change:
    """One thing under a stream table that is other than it was."""

    stream_table_id: int
    kind: Kind
    oid: int
    digest: str | None
    """As it is now."""
    is_planned_otherwise: bool
    is_recorded_otherwise: bool


def digests_under(conn: Connection, view: int) -> Digests:
    """Return the digests of everything that a view depends on, as it is now."""
    found: list[tuple[Kind, int]] = conn.execute(_SQL["under"], {"view": view}).fetchall()
    tables = [oid for kind, oid in found if kind == "table"]
    found += [("key", oid) for oid in tables]
    found += [("name", oid) for kind, oid in found if kind == "type"]
    found += [("storage", oid) for root, below in relations.partitions(conn, tables).items() for oid in (root, *below)]
    return _now(conn, found)


def digests_of_target(conn: Connection, relid: int) -> Digests:
    """What users may have altered of a stream table's own table, as it is now."""
    return _now(conn, [("shape", relid), ("triggers", relid)])


def _now(conn: Connection, objects: Sequence[tuple[Kind, int]]) -> Digests:
    unknown: Digests = dict.fromkeys(objects)
    return unknown | {(one.kind, one.oid): one.digest for one in changed_definitions(conn, {0: unknown})}


def changed_definitions(conn: Connection, planned: Mapping[int, Digests]) -> list[Change]:
    """By id of a stream table, what its plan stands on: all that is not as planned, or not as recorded."""
    rows = [(id, kind, oid, digest) for id, own in planned.items() for (kind, oid), digest in own.items()]
    return [Change(*row) for row in conn.execute(_SQL["changed"], [[row[n] for row in rows] for n in range(4)])]


def recorded(conn: Connection, stream_table_ids: Sequence[int]) -> dict[int, Digests]:
    """By id of a stream table, what its rows were last computed whole on."""
    found: dict[int, Digests] = {id: {} for id in stream_table_ids}
    for id, kind, oid, digest in conn.execute(_SQL["recorded"], (list(stream_table_ids),)):
        found[id][kind, oid] = digest
    return found


def record(conn: Connection, stream_table_id: int, planned: Digests) -> None:
    """The rows were computed whole, on these."""
    kept = [(kind, oid, digest) for (kind, oid), digest in planned.items() if kind not in ("key", "target", "name")]
    conn.execute(_SQL["forget"], (stream_table_id,))
    conn.execute(_SQL["record"], (stream_table_id, *([row[n] for row in kept] for n in range(3))))


# -- what a change means ---------------------------------------------------------------------

# In the order of precedence: why the rows are computed whole.
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
    """The reason code of a recomputation; empty when none is needed."""
    kinds = {one.kind for one in changes if one.is_recorded_otherwise}
    return next((code for kind, code in REASONS.items() if kind in kinds), "")
