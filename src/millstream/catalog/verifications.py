"""When each stream table was last compared with its query, and the differences found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from millstream.frontier.snapshot import Snapshot
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog", "verifications.sql")
# For each stream table, so that a lasting difference does not fill the disk.
KEPT = 100


@dataclass(frozen=True)
class Evidence:
    """A difference between a stream table and its query."""

    stream_table_id: int
    frontier: Snapshot
    data_timestamp: datetime
    missing: int
    extra: int
    # Values of a row are of any type.
    sample: Sequence[Mapping[str, Any]]


def record(conn: Connection, stream_table_id: int, *, ok: bool) -> None:
    """Record that a stream table was compared, and whether it was equal."""
    conn.execute(_SQL["record"], (ok, stream_table_id))


def add_evidence(conn: Connection, evidence: Evidence) -> None:
    """Record differences; only the last KEPT of each stream table are stored."""
    sample = Jsonb(
        [{name: _plain(value) for name, value in row.items()} for row in evidence.sample]
    )
    conn.execute(
        _SQL["add_evidence"],
        (
            evidence.stream_table_id, str(evidence.frontier), evidence.data_timestamp, evidence.missing,
            evidence.extra, sample,
        ),
    )  # fmt: skip
    conn.execute(_SQL["prune"], (evidence.stream_table_id, evidence.stream_table_id, KEPT))


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | str) or value is None else str(value)
