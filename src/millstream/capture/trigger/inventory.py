"""Compare the existing triggers with those that a source needs.

A migration, a restore or an administrator can drop or disable a trigger without notice. Capture loses what is
written meanwhile. So each tick checks for gaps, and closes a gap by setting up
capture again, which marks the buffer: each reader then reinitialises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.capture.trigger.layout import Tree, Trigger, trees
from millstream.capture.wal import publication as published
from millstream.capture.wal import slot
from millstream.catalog.sources import Source
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.sql_files import load

_SQL = load("millstream.capture.trigger", "layout.sql")

# The bits of pg_trigger.tgtype.
_BITS = {"INSERT": 4, "DELETE": 8, "UPDATE": 16, "TRUNCATE": 32}


@dataclass(frozen=True)
class Found:
    """A capture trigger that exists in the database."""

    table: Name
    name: str
    function: str
    enabled: str
    by_row: bool
    operation: int


def missing(conn: Connection, relid: int) -> list[str]:
    """Return why a source is not fully captured, one text per fault; empty if it is."""
    return gaps(conn, [relid])[relid]


def gaps_of(conn: Connection, known: Sequence[Source]) -> dict[int, list[str]]:
    """Return the faults of capture of many sources, by oid, whether captured by triggers or from
    WAL.
    """
    found = gaps(conn, [source.relid for source in known if source.mode != "WAL"])
    from_wal = [source for source in known if source.mode == "WAL"]
    if from_wal:
        publication = slot.name_of(conn)
        buffered = {
            relid
            for (relid,) in conn.execute(_SQL["buffers"], ([source.relid for source in from_wal],))
        }
        for source in from_wal:
            absent = [] if source.relid in buffered else ["the change buffer is missing"]
            found[source.relid] = absent + published.gaps(conn, publication, source)
    return found


def gaps(conn: Connection, relids: Sequence[int]) -> dict[int, list[str]]:
    """Return the faults of the triggers of these sources, by four queries.

    In a cut, they are those at the cut.
    """
    wanted = trees(conn, relids)
    found = triggers(conn, relids)
    buffered = {relid for (relid,) in conn.execute(_SQL["buffers"], (list(relids),))}
    return {relid: _gaps(wanted.get(relid), found[relid], relid in buffered) for relid in relids}


def triggers(conn: Connection, relids: Sequence[int]) -> dict[int, list[Found]]:
    """Return, by source, the triggers that call one of its capture functions, on any table."""
    found: dict[int, list[Found]] = {relid: [] for relid in relids}
    for relid, oid, schema, table, *facts in conn.execute(_SQL["triggers"], (list(relids),)):
        found[relid].append(Found(Name(oid, schema, table), *facts))
    return found


def functions(conn: Connection, relid: int) -> dict[str, str | None]:
    """Return the capture functions of a source: their names, without the schema, and their bodies.

    The body is None if the function has been altered in other ways than its body.
    """
    return dict(conn.execute(_SQL["functions"], (relid,)).fetchall())


def superfluous(tree: Tree | None, found: Sequence[Found]) -> list[Found]:
    """Return the triggers on tables that no longer belong to the source, or that it no longer
    needs.
    """
    needed = {(trigger.table.oid, trigger.name) for trigger in tree.triggers()} if tree else set()
    return [each for each in found if (each.table.oid, each.name) not in needed]


def lacking(tree: Tree, found: Sequence[Found]) -> list[Trigger]:
    """Return the triggers that are missing, disabled or defined differently."""
    there = {(each.table.oid, each.name): each for each in found}
    return [
        trigger
        for trigger in tree.triggers()
        if _wrong(trigger, there.get((trigger.table.oid, trigger.name)))
    ]


def _gaps(tree: Tree | None, found: Sequence[Found], has_buffer: bool) -> list[str]:
    if tree is None:
        return ["the table was dropped"]
    there = {(each.table.oid, each.name): each for each in found}
    wrong = [
        _wrong(trigger, there.get((trigger.table.oid, trigger.name))) for trigger in tree.triggers()
    ]
    left = [
        f"trigger {each.name} on {each.table} is left over" for each in superfluous(tree, found)
    ]
    buffer = [] if has_buffer else ["the change buffer is missing"]
    return [*buffer, *(each for each in wrong if each), *left]


def _wrong(trigger: Trigger, found: Found | None) -> str:
    """Return what is wrong with a trigger; "" if nothing is."""
    if found is None:
        return f"trigger {trigger} is missing"
    if found.enabled == "D":
        return f"trigger {trigger} is disabled"
    if found.enabled != "A":
        return f"trigger {trigger} is not set to ENABLE ALWAYS"
    kind = (found.function, found.by_row, found.operation)
    if kind != (trigger.function, trigger.level == "ROW", _BITS[trigger.operation]):
        return f"trigger {trigger} has another definition"
    return ""
