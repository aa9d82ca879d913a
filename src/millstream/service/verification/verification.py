"""The result of a verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from millstream.frontier.snapshot import Snapshot


@dataclass(frozen=True)
class Verification:
    """The outcome of comparing a stream table with its query at its frontier."""

    name: str
    ok: bool
    rows: int
    missing: int
    extra: int
    sample: tuple[dict[str, Any], ...]
    frontier: Snapshot
    data_timestamp: datetime
    rounded: tuple[str, ...] = ()
    """Columns compared to 12 significant digits only: sums of floats."""

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Verification:
        """Create it from the document of `as_dict`, such as the answer of a service."""
        given = dict(document)
        given["frontier"] = Snapshot.parse(given["frontier"])
        given["data_timestamp"] = datetime.fromisoformat(given["data_timestamp"])
        return cls(
            **{**given, "sample": tuple(given["sample"]), "rounded": tuple(given["rounded"])}
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        return {
            "name": self.name, "ok": self.ok, "rows": self.rows, "missing": self.missing, "extra": self.extra,
            "sample": list(self.sample), "frontier": str(self.frontier),
            "data_timestamp": self.data_timestamp.isoformat(), "rounded": list(self.rounded),
        }  # fmt: skip
