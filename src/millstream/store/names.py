"""Name the relations that belong to a stream table, besides its own table.

State lives in schema `millstream_state`; staging in temporary tables of the session, which stream
tables of one shape share (`staging.py`), so that a refresh creates no catalog rows.

    an aggregate        Spark -> delta -> groups -> state -> rows -> the stream table
    without a state     Spark -> delta                    -> rows -> the stream table
    an inner block      ... -> state, or materialized rows -> changes: images, which the next block reads
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from psycopg import sql

from millstream.algebra.relation import Scan
from millstream.algebra.table import BlockRows, SourceTable, Table
from millstream.postgres.composed import Printed, row_text

STATE_SCHEMA = "millstream_state"

ROW_ID = "__ms_row_id"
# A column of an inner block's stored rows: the partition, or the hash of the row.
PART = "__ms_part"


@dataclass(frozen=True)
class BlockNames:
    """The names of the relations of one block of a stream table."""

    id: int
    schema: str
    name: str
    block: int = 0
    term: int | None = None
    """The number of the term, if these are the names for a term of a recursion."""
    shapes: tuple[str, ...] = ()
    """The shape of each block's staging tables; known only in a cut."""

    def of_term(self, term: int) -> BlockNames:
        """Return the names for a term of the recursion."""
        return replace(self, term=term)

    def at(self, block: int) -> BlockNames:
        """Return the names for another block of the stream table."""
        return replace(self, block=block)

    def source(self, table: Table) -> sql.Composable:
        """Return the relation that an input reads: a table, or the view of an inner block."""
        match table:
            case BlockRows(block=block):
                return self.at(block).shown
            case SourceTable(schema=schema, name=name):
                return sql.Identifier(schema, name)
        return Printed(table.relation)

    @property
    def target(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def state(self) -> sql.Identifier:
        return sql.Identifier(STATE_SCHEMA, f"state_{self.id}_{self.block}")

    @property
    def shown(self) -> sql.Identifier:
        """The view that computes the rows of an inner block from its state."""
        return sql.Identifier(STATE_SCHEMA, f"block_{self.id}_{self.block}")

    @property
    def materialized(self) -> sql.Identifier:
        """The table of a block's materialized rows."""
        return sql.Identifier(STATE_SCHEMA, f"rows_{self.id}_{self.block}")

    # -- staging tables ----------------------------------------------------------------------

    def _staging(self, kind: str, term: int | None = None) -> sql.Identifier:
        # With the block's position: a chain may have two blocks of one shape, staged at the same
        # time.
        of_term = "" if term is None else f"_{term}"
        return sql.Identifier(
            "pg_temp", f"ms_{kind}_{self.shapes[self.block]}_{self.block}{of_term}"
        )

    def staging(self, terms: int = 0) -> list[sql.Identifier]:
        """Return the names of all staging tables of the block; `terms` is the number of terms of a
        recursion.
        """
        own = [
            self.new,
            self.delta,
            self.groups,
            self.group_rows,
            self.rows,
            self.steps,
            self.gone,
            self.changes,
        ]
        return [*own, *(self.of_term(number).delta for number in range(terms))]

    @property
    def new(self) -> sql.Identifier:
        """The new materialized rows of the touched parts."""
        return self._staging("new")

    @property
    def delta(self) -> sql.Identifier:
        """The rows that Spark sent, not decoded yet."""
        return self._staging("delta", self.term)

    @property
    def groups(self) -> sql.Identifier:
        """The touched groups, decoded, with the difference or the new value of their state."""
        return self._staging("groups")

    @property
    def group_rows(self) -> sql.Identifier:
        """The rows of touched groups, not decoded yet."""
        return self._staging("members")

    @property
    def rows(self) -> sql.Identifier:
        """The rows of the stream table to write or to delete."""
        return self._staging("rows")

    @property
    def steps(self) -> sql.Identifier:
        """The rows of a recursion that were derived, with the step that derived them."""
        return self._staging("steps")

    @property
    def gone(self) -> sql.Identifier:
        """The rows of a recursion that were removed, with the step that removed them."""
        return self._staging("gone")

    @property
    def changes(self) -> sql.Identifier:
        """The changes of a refresh to the rows of an inner block: images, as in a change buffer."""
        return self._staging("changes")


class PlanningNames(BlockNames):
    """Names of temporary relations for planning, when the stream table does not exist yet."""

    @property
    def state(self) -> sql.Identifier:
        return sql.Identifier("pg_temp", f"ms_plan_state_{self.block}")

    @property
    def shown(self) -> sql.Identifier:
        return sql.Identifier("pg_temp", f"ms_plan_block_{self.block}")

    @property
    def materialized(self) -> sql.Identifier:
        return sql.Identifier("pg_temp", f"ms_plan_rows_{self.block}")


def row_hash(columns: Sequence[sql.Composable]) -> sql.Composed:
    """Return the expression for 128 bits of a row's exact text.

    ROW(...)::text distinguishes NULL from '' and separates the columns.
    """
    return sql.SQL("substring(sha256(convert_to({}, 'UTF8')) FROM 1 FOR 16)").format(
        row_text(columns)
    )


def from_item(scan: Scan, relation: sql.Composable) -> sql.Composed:
    """Return the FROM item that reads the rows of a scan from a relation."""
    expansions = [Printed(expansion.sql) for expansion in scan.expansions]
    item = sql.SQL("{} AS {}").format(relation, sql.Identifier(scan.alias))
    return sql.SQL(" ").join([item, *expansions])
