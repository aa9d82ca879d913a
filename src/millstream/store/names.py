"""The names of what a stream table keeps in the database beside itself.

State lives in schema `millstream_state`; staging in temporary tables of the session, which stream tables of one
shape share (`staging.py`), so that a refresh makes no new catalog rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.algebra.table import Table, quoted

ROW_ID = "__ms_row_id"
# In what a block shows of stored rows: the partition, or the row's own hash.
PART = "__ms_part"


@dataclass(frozen=True)
class BlockNames:
    """The relations of one block of a stream table, quoted for use in SQL."""

    id: int
    schema: str
    name: str
    block: int = 0
    term: int | None = None
    """Of a recursion: which of its terms."""
    shapes: tuple[str, ...] = ()
    """Of each block, the shape that its staging tables have; known in a cut."""

    def of_term(self, term: int) -> BlockNames:
        """Those of a term."""
        return replace(self, term=term)

    def at(self, block: int) -> BlockNames:
        """Those of another block."""
        return replace(self, block=block)

    def source(self, table: Table) -> str:
        """Where the rows of an input are: in a table, or in what an inner block shows."""
        return table.relation if table.block is None else self.at(table.block).shown

    @property
    def target(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def state(self) -> str:
        return f"millstream_state.state_{self.id}_{self.block}"

    @property
    def shown(self) -> str:
        """A view: the rows of an inner block, read off its state."""
        return f"millstream_state.block_{self.id}_{self.block}"

    @property
    def materialized(self) -> str:
        """The rows of a block that are stored as they are."""
        return f"millstream_state.rows_{self.id}_{self.block}"

    # -- staging tables ----------------------------------------------------------------------

    def _staging(self, kind: str) -> str:
        # With the block's place: two blocks of one shape in one chain are staged side by side.
        return f"pg_temp.ms_{kind}_{self.shapes[self.block]}_{self.block}"

    def staging(self, terms: int = 0) -> list[str]:
        """All of the block's."""
        own = [self.new, self.delta, self.groups, self.group_rows, self.rows, self.steps, self.gone, self.changes]
        return [*own, *(self.of_term(number).delta for number in range(terms))]

    @property
    def new(self) -> str:
        """Those rows as they shall be, of what was touched."""
        return self._staging("new")

    @property
    def delta(self) -> str:
        """What Spark sent, as it travelled."""
        return self._staging("delta") + ("" if self.term is None else f"_{self.term}")

    @property
    def groups(self) -> str:
        """Touched groups, decoded, with what their state gains or becomes."""
        return self._staging("groups")

    @property
    def group_rows(self) -> str:
        """The rows of touched groups, as they travelled."""
        return self._staging("members")

    @property
    def rows(self) -> str:
        """Rows of the stream table as they shall be, or shall no longer be."""
        return self._staging("rows")

    @property
    def steps(self) -> str:
        """Rows of a recursion that were found, with the step that found them."""
        return self._staging("steps")

    @property
    def gone(self) -> str:
        """Rows of a recursion that were taken out, likewise."""
        return self._staging("gone")

    @property
    def changes(self) -> str:
        """What a refresh did to the rows of an inner block: images, as in a change buffer."""
        return self._staging("changes")


class PlanningNames(BlockNames):
    """Names for the time of planning: a block's rows can be asked about before there is a stream table."""

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
    """128 bits of a row's exact text; ROW(...)::text tells NULL from '' and one column from the next."""
    return f"substring(sha256(convert_to(ROW({', '.join(columns)})::text, 'UTF8')) FROM 1 FOR 16)"
