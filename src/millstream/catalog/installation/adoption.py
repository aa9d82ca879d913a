"""Rewrite a catalog that came from another database, so that its oids are those of this one.

Tables are found by their recorded names. Everything happens in one transaction of the caller: if
the process is killed, the catalog is either unchanged or completely rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from psycopg.types.json import Jsonb

from millstream.catalog import sources, stream_tables
from millstream.catalog.installation import identity
from millstream.catalog.row_key import RowKey
from millstream.catalog.sources import Source
from millstream.catalog.target import targets, write_guard
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.installation", "adoption.sql")


def missing_objects(conn: Connection) -> dict[int, str]:
    """Return the objects that do not exist under their recorded names, by id of the stream table
    that needs them.
    """
    known = {source.relid: source for source in sources.every(conn)}
    here = _tables_named(
        conn, [(source.schema, source.name) for source in known.values()] + _targets(conn)
    )
    found: dict[int, str] = {}
    for table in stream_tables.every(conn):
        if (table.schema_name, table.name) not in here:
            found[table.id] = f"there is no table {table.qualified}"
    for id, relid, _ in conn.execute(_SQL["dependencies"]).fetchall():
        source = known[relid]
        if (source.schema, source.name) not in here:
            found.setdefault(id, f"there is no table {source.qualified}, which it reads")
    return found


def rewrite_oids(conn: Connection) -> None:
    """Replace the oids of sources, stream tables and their keys by those of this database. No
    capture is set up and no rows are computed.
    """
    known, read = sources.every(conn), conn.execute(_SQL["dependencies"]).fetchall()
    partitions = {
        relid: dict(zip(oids, names, strict=False))
        for relid, oids, names in conn.execute(_SQL["partition_names"])
    }
    tables = stream_tables.every(conn)
    here = _tables_named(conn, [(source.schema, source.name) for source in known] + _targets(conn))
    moved = {
        source.relid: here[source.schema, source.name]
        for source in known
        if (source.schema, source.name) in here
    }
    conn.execute(_SQL["clear"])
    for source in known:
        if source.relid in moved:
            names = {source.relid: source.qualified, **partitions[source.relid]}
            sources.put(conn, _uncaptured(conn, source, moved[source.relid], names))
    for id, relid, columns in read:
        if relid in moved:
            sources.add_dependency(conn, id, moved[relid], columns)
    for table in tables:
        key = Jsonb(_rewritten(table.row_key, moved).as_dict()) if table.row_key else None
        conn.execute(_SQL["attach"], (here.get((table.schema_name, table.name)), key, table.id))


def take_over(conn: Connection) -> None:
    """Drop the restored capture objects, and record this database as the one that the catalog
    belongs to.
    """
    for (statement,) in conn.execute(_SQL["captures"]).fetchall():
        conn.execute(statement)
    conn.execute(_SQL["new_installation"])
    for table in stream_tables.every(conn):
        targets.mark(conn, table.id)
    write_guard.remove_left_over(conn)
    write_guard.renew_secret(conn)
    identity.record(conn)


def _targets(conn: Connection) -> list[tuple[str, str]]:
    return [(table.schema_name, table.name) for table in stream_tables.every(conn)]


def _tables_named(conn: Connection, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    each = sorted(set(names))
    rows = conn.execute(
        _SQL["tables_named"], ([schema for schema, _ in each], [name for _, name in each])
    )
    return {(schema, name): oid for schema, name, oid in rows}


def _uncaptured(conn: Connection, source: Source, relid: int, names: Mapping[int, str]) -> Source:
    """Return a source without capture. Its replica identity from before Millstream changed it is
    recorded by name.
    """
    former = [(names.get(oid, ""), text) for oid, text in source.identities.items()]
    oids = [oid for (oid,) in conn.execute(_SQL["oids_of"], ([name or "-" for name, _ in former],))]
    kept = {oid: text for oid, (_, text) in zip(oids, former, strict=True) if oid}
    reason = "The catalog was adopted from another database."
    return Source(relid, source.schema, source.name, "TRIGGER", (), reason=reason, identities=kept)


def _rewritten(key: RowKey, moved: Mapping[int, int]) -> RowKey:
    return replace(
        key, sources={moved.get(relid, relid): columns for relid, columns in key.sources.items()}
    )
