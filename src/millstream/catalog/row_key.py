"""The key of a stream table's rows, as chosen when the table was created.

The rows are stored by that key, so a later plan must not use another one, even if a source has got
a new primary key since, or has lost the one from which the key was derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.algebra.block import Key
from millstream.errors import SourceChanged
from millstream.store.names import ROW_ID


@dataclass(frozen=True)
class RowKey:
    """The key, and the keys of the sources from which it was derived."""

    key: Key
    sources: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def materialized(self, name: str, derived: Key) -> Key:
        """Return the recorded key if the newly derived one still implies it."""
        if self.key.kind == "row_id":
            return self.key
        if (self.key.kind, self.key.columns) != (derived.kind, derived.columns):
            raise SourceChanged.key(name, self.key.columns)
        return Key(self.key.kind, self.key.columns, self.key.nullable or derived.nullable)

    def indexed(self) -> str:
        """Return the columns of the stream table's unique index, which `definition_digests` checks."""
        columns = {"row_id": (ROW_ID,), "single": ("",)}.get(self.key.kind, self.key.columns)
        return "\n".join(sorted(columns))

    def as_dict(self) -> dict[str, Any]:
        """Return the form in which the catalog stores it."""
        sources = {str(relid): list(columns) for relid, columns in self.sources.items()}
        key = self.key
        return {
            "kind": key.kind,
            "columns": list(key.columns),
            "nullable": key.nullable,
            "sources": sources,
        }

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> RowKey:
        """Create it from the form in the catalog."""
        sources = {int(relid): tuple(columns) for relid, columns in row["sources"].items()}
        return cls(Key(row["kind"], tuple(row["columns"]), row["nullable"]), sources)
