"""Compare the triggers that are there with those that ought to be.

A migration, a restore or an administrator can drop or disable a trigger, and nothing tells us. What was
written meanwhile is lost to capture, so a gap is found by looking, each tick, and closed by setting the
capture up again, which marks the buffer: each reader then reinitialises.
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

# As pg_trigger.tgtype has them.
_BITS = {"INSERT": 4, "DELETE": 8, "UPDATE": 16, "TRUNCATE": 32}


@dataclass(frozen=True)
class Found:
    """A trigger of ours as the server has it."""

    table: Name
    name: str
    function: str
    enabled: str
    by_row: bool
    operation: int


def missing(conn: Connection, relid: int) -> list[str]:
    """What a source lacks to be captured whole, each in words; empty when all is well."""
    return gaps(conn, [relid])[relid]


def gaps_of(conn: Connection, known: Sequence[Source]) -> dict[int, list[str]]:
    """The same for many sources, each by the way it is captured."""
    found = gaps(conn, [source.relid for source in known if source.mode != "WAL"])
    logged = [source for source in known if source.mode == "WAL"]
    if logged:
        publication = slot.name_of(conn)
        buffered = {relid for (relid,) in conn.execute(_SQL["buffers"], ([source.relid for source in logged],))}
        for source in logged:
            absent = [] if source.relid in buffered else ["the change buffer is missing"]
            found[source.relid] = absent + published.gaps(conn, publication, source)
    return found


def gaps(conn: Connection, relids: Sequence[int]) -> dict[int, list[str]]:
    """The same of triggers alone; four queries in all. Read in a cut, it tells how things stood at the cut."""
    wanted = trees(conn, relids)
    found = triggers(conn, relids)
    buffered = {relid for (relid,) in conn.execute(_SQL["buffers"], (list(relids),))}
    return {relid: _gaps(wanted.get(relid), found[relid], relid in buffered) for relid in relids}


def triggers(conn: Connection, relids: Sequence[int]) -> dict[int, list[Found]]:
    """The triggers that call a capture function of each source, on any table."""
    found: dict[int, list[Found]] = {relid: [] for relid in relids}
    for relid, oid, schema, table, *facts in conn.execute(_SQL["triggers"], (list(relids),)):
        found[relid].append(Found(Name(oid, schema, table), *facts))
    return found


def functions(conn: Connection, relid: int) -> dict[str, str | None]:
    """The capture functions of a source: their names, without the schema, and their bodies.

    None for one that has been altered: whatever its body, it is not what we made.
    """
    return dict(conn.execute(_SQL["functions"], (relid,)).fetchall())


def superfluous(tree: Tree | None, found: Sequence[Found]) -> list[Found]:
    """Triggers on tables that are no longer the source's, or of a kind it no longer needs."""
    needed = {(trigger.table.oid, trigger.name) for trigger in tree.triggers()} if tree else set()
    return [each for each in found if (each.table.oid, each.name) not in needed]


def lacking(tree: Tree, found: Sequence[Found]) -> list[Trigger]:
    """The triggers that are absent, disabled or of another kind."""
    there = {(each.table.oid, each.name): each for each in found}
    return [trigger for trigger in tree.triggers() if _wrong(trigger, there.get((trigger.table.oid, trigger.name)))]


def _gaps(tree: Tree | None, found: Sequence[Found], has_buffer: bool) -> list[str]:
    if tree is None:
        return ["the table was dropped"]
    there = {(each.table.oid, each.name): each for each in found}
    wrong = [_wrong(trigger, there.get((trigger.table.oid, trigger.name))) for trigger in tree.triggers()]
    left = [f"trigger {each.name} on {each.table} is left over" for each in superfluous(tree, found)]
    buffer = [] if has_buffer else ["the change buffer is missing"]
    return [*buffer, *(each for each in wrong if each), *left]


def _wrong(trigger: Trigger, found: Found | None) -> str:
    """What is wrong with a trigger; empty when nothing is."""
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
