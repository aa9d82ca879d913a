"""The names of what a stream table keeps in the database beside itself.

State lives in schema `millstream_state`; staging in session-temporary tables that are emptied at
each commit, so that a refresh makes no new catalog rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.algebra.table import quoted

ROW_ID = "__ms_row_id"


@dataclass(frozen=True)
class Names:
    """The relations of one stream table, quoted for use in SQL."""

    id: int
    schema: str
    name: str

    @property
    def target(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def state(self) -> str:
        return f"millstream_state.state_{self.id}"

    @property
    def delta(self) -> str:
        """What Spark sent, as it travelled."""
        return f"pg_temp.ms_delta_{self.id}"

    @property
    def groups(self) -> str:
        """Touched groups, decoded, with what their state gains or becomes."""
        return f"pg_temp.ms_groups_{self.id}"

    @property
    def rows(self) -> str:
        """Rows of the stream table as they shall be, or shall no longer be."""
        return f"pg_temp.ms_rows_{self.id}"


def row_hash(columns: list[str]) -> str:
    """128 bits of a row's exact text; ROW(...)::text tells NULL from '' and one column from the next."""
    return f"substring(sha256(convert_to(ROW({', '.join(columns)})::text, 'UTF8')) FROM 1 FOR 16)"
