"""Name the relations that belong to a stream table, besides its own table.

State lives in schema `millstream_state`; staging in temporary tables of the session, which stream
tables of one shape share (`staging.py`), so that a refresh creates no catalog rows.

    an aggregate        Spark -> delta -> groups -> state -> rows -> the stream table
    without a state     Spark -> delta                    -> rows -> the stream table
    an inner block      ... -> state, or materialized rows -> changes: images, which the next block reads
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.algebra.table import BlockRows, Table, quoted

ROW_ID = "__ms_row_id"
# A column of an inner block's stored rows: the partition, or the hash of the row.
PART = "__ms_part"


@dataclass(frozen=True)
class BlockNames:
    """The relations of one block of a stream table, quoted for use in SQL."""

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

    def source(self, table: Table) -> str:
        """Return the relation that an input reads: a table, or the view of an inner block."""
        return self.at(table.block).shown if isinstance(table, BlockRows) else table.relation

    @property
    def target(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def state(self) -> str:
        return f"millstream_state.state_{self.id}_{self.block}"

    @property
    def shown(self) -> str:
        """The view that computes the rows of an inner block from its state."""
        return f"millstream_state.block_{self.id}_{self.block}"

    @property
    def materialized(self) -> str:
        """The table of a block's materialized rows."""
        return f"millstream_state.rows_{self.id}_{self.block}"

    # -- staging tables ----------------------------------------------------------------------

    def _staging(self, kind: str) -> str:
        # With the block's position: a chain may have two blocks of one shape, staged at the same
        # time.
        return f"pg_temp.ms_{kind}_{self.shapes[self.block]}_{self.block}"

    def staging(self, terms: int = 0) -> list[str]:
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
    def new(self) -> str:
        """The new materialized rows of the touched parts."""
        return self._staging("new")

    @property
    def delta(self) -> str:
        """The rows that Spark sent, not decoded yet."""
        return self._staging("delta") + ("" if self.term is None else f"_{self.term}")

    @property
    def groups(self) -> str:
        """The touched groups, decoded, with the difference or the new value of their state."""
        return self._staging("groups")

    @property
    def group_rows(self) -> str:
        """The rows of touched groups, not decoded yet."""
        return self._staging("members")

    @property
    def rows(self) -> str:
        """The rows of the stream table to write or to delete."""
        return self._staging("rows")

    @property
    def steps(self) -> str:
        """The rows of a recursion that were derived, with the step that derived them."""
        return self._staging("steps")

    @property
    def gone(self) -> str:
        """The rows of a recursion that were removed, with the step that removed them."""
        return self._staging("gone")

    @property
    def changes(self) -> str:
        """The changes of a refresh to the rows of an inner block: images, as in a change buffer."""
        return self._staging("changes")


class PlanningNames(BlockNames):
    """Names of temporary relations for planning, when the stream table does not exist yet."""

    @property
    def state(self) -> str:
        return f"pg_temp.ms_plan_state_{self.block}"

    @property
    def shown(self) -> str:
        return f"pg_temp.ms_plan_block_{self.block}"

    @property
    def materialized(self) -> str:
        return f"pg_temp.ms_plan_rows_{self.block}"


def row_hash(columns: list[str]) -> str:
    """Return the expression for 128 bits of a row's exact text.

    ROW(...)::text distinguishes NULL from '' and separates the columns.
    """
    return f"substring(sha256(convert_to(ROW({', '.join(columns)})::text, 'UTF8')) FROM 1 FOR 16)"
