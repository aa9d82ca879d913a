"""Which triggers a source needs, and on which tables: statement triggers, or row triggers if these
are not enough.

    orders                       A statement fires the statement triggers of the table that it names, and of no
      ├─ orders_2025             other. The transition tables contain the rows of partitions and children.
      └─ orders_2026             So the root and each partition or child have triggers of their own.

This misses writes by statements that name a table outside the source:
- the source is itself a partition or a child, or one of its children is also the child of another table,
  and the statement names that other table;
- a subscription writes to it: its apply worker fires row triggers only.
Row triggers fire in both cases, so such a source has row triggers on each table that contains rows.
TRUNCATE fires the triggers of each table that it empties, whatever table it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from psycopg import sql

from millstream.capture.buffer.slices import SCHEMA
from millstream.capture.trigger.function import Level, function_name
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.postgres.relations import Name
from millstream.postgres.sql_files import load

Operation = Literal["INSERT", "UPDATE", "DELETE", "TRUNCATE"]
OPERATIONS: tuple[Operation, ...] = ("INSERT", "UPDATE", "DELETE", "TRUNCATE")

_SQL = load("millstream.capture.trigger", "layout.sql")

TRANSITIONS: Mapping[Operation, sql.SQL] = {
    "INSERT": sql.SQL("REFERENCING NEW TABLE AS new_rows"),
    "UPDATE": sql.SQL("REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows"),
    "DELETE": sql.SQL("REFERENCING OLD TABLE AS old_rows"),
    "TRUNCATE": sql.SQL(""),
}


@dataclass(frozen=True)
class Trigger:
    """One trigger that a source needs on one of its tables."""

    relid: int
    table: Name
    operation: Operation
    level: Level

    @property
    def name(self) -> str:
        """The trigger's name, with the source's oid: a partition can belong to two sources, its
        root and itself.
        """
        return f"millstream_{self.operation.lower()}_{self.relid}"

    @property
    def function(self) -> str:
        """The name of its function, without the schema."""
        return function_name(self.relid, self.table.oid)

    def statements(self) -> list[sql.Composed]:
        """Return the statements that create it and let it fire under any session_replication_role."""
        names = {"name": sql.Identifier(self.name), "table": self.table.identifier}
        return [
            sql.SQL(
                "CREATE OR REPLACE TRIGGER {name} AFTER {operation} ON {table} {transitions}"
                " FOR EACH {level} EXECUTE FUNCTION {function}()"
            ).format(
                **names,
                operation=sql.SQL(self.operation),
                transitions=TRANSITIONS[self.operation]
                if self.level == "STATEMENT"
                else sql.SQL(""),
                level=sql.SQL(self.level),
                function=sql.Identifier(SCHEMA, self.function),
            ),
            sql.SQL("ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}").format(**names),
        ]

    def __str__(self) -> str:
        return f"{self.name} on {self.table}"


@dataclass(frozen=True)
class Tree:
    """The tables of a source: first the source itself, then its partitions and children."""

    relid: int
    level: Level
    tables: tuple[Name, ...]
    partitioned: frozenset[int]
    """The partitioned ones, which contain no rows themselves."""

    @property
    def partitions(self) -> tuple[int, ...]:
        """The oids of partitions and children, as recorded in the catalog."""
        return tuple(sorted(table.oid for table in self.tables if table.oid != self.relid))

    def triggers(self) -> list[Trigger]:
        """Return all triggers that the source needs."""
        return [
            Trigger(
                self.relid, table, operation, "STATEMENT" if operation == "TRUNCATE" else self.level
            )
            for table in self.tables
            for operation in OPERATIONS
            if operation == "TRUNCATE"
            or self.level == "STATEMENT"
            or table.oid not in self.partitioned
        ]


def trees(conn: Connection, relids: Sequence[int]) -> dict[int, Tree]:
    """Return, for each source that still exists, its tables and the level of its triggers."""
    pairs = [
        (root, each)
        for root, below in relations.partitions(conn, relids).items()
        for each in (root, *below)
    ]
    roots, tables = [root for root, _ in pairs], [table for _, table in pairs]
    found: dict[int, Tree] = {}
    for root, by_row, oids, schemas, names, kinds in conn.execute(_SQL["trees"], (roots, tables)):
        named = tuple(Name(*each) for each in zip(oids, schemas, names, strict=True))
        partitioned = frozenset(oid for oid, kind in zip(oids, kinds, strict=True) if kind == "p")
        found[root] = Tree(root, "ROW" if by_row else "STATEMENT", named, partitioned)
    return found
