"""Rows of millstream.upstreams: the stream tables that each stream table reads, and the views and
functions in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog", "upstreams.sql")


@dataclass(frozen=True)
class Upstream:
    """A stream table that another one reads; `via` names the views and functions in between."""

    id: int
    via: tuple[str, ...] = ()


@dataclass(frozen=True)
class OlderUpstream:
    """An upstream whose rows are older than the cut that a reader was refreshed in."""

    id: int
    name: str
    status: str
    data_timestamp: datetime | None
    last_error: str | None

    def __str__(self) -> str:
        """Print why: `public.b is SUSPENDED`, `public.b was not refreshed with it`."""
        reason = (self.last_error or "").partition("\n")[0]
        state = f"is {self.status}" if self.status != "ACTIVE" else "was not refreshed with it"
        return f"{self.name} {state}" + (f": {reason}" if reason else "")

    @classmethod
    def from_dict(cls, document: Mapping[str, str | None]) -> OlderUpstream:
        """Create it from the document of `as_dict`."""
        moment = document["data_timestamp"]
        timestamp = datetime.fromisoformat(moment) if moment else None
        return cls(
            0, document["name"] or "", document["status"] or "", timestamp, document["error"]
        )

    def as_dict(self) -> dict[str, str | None]:
        """Return the document that `--json` prints."""
        moment = self.data_timestamp.isoformat() if self.data_timestamp else None
        return {
            "name": self.name,
            "status": self.status,
            "data_timestamp": moment,
            "error": self.last_error,
        }


def every(conn: Connection) -> dict[int, list[Upstream]]:
    """Return the upstreams of each stream table that has some, by its id."""
    found = dict[int, list[Upstream]]()
    for reader, upstream, via in conn.execute(_SQL["every"]):
        found.setdefault(reader, []).append(Upstream(upstream, tuple(via)))
    return found


def put(conn: Connection, stream_table_id: int, upstreams: Sequence[Upstream]) -> None:
    """Replace the recorded upstreams of a stream table."""
    conn.execute(_SQL["remove"], (stream_table_id,))
    for upstream in upstreams:
        conn.execute(_SQL["add"], (stream_table_id, list(upstream.via), upstream.id))


def of(conn: Connection, stream_table_id: int) -> list[Upstream]:
    """Return the recorded upstreams of a stream table."""
    return [Upstream(id, tuple(via)) for id, via in conn.execute(_SQL["of"], (stream_table_id,))]


def older_than_cut(
    conn: Connection, readers: Sequence[int], cut_at: datetime
) -> dict[int, tuple[OlderUpstream, ...]]:
    """Return the upstreams of each reader, to any depth, that were not refreshed in the cut at this
    time.
    """
    found = dict[int, tuple[OlderUpstream, ...]]()
    for reader, *row in conn.execute(
        _SQL["older_than_cut"], {"readers": list(readers), "cut_at": cut_at}
    ):
        found[reader] = (*found.get(reader, ()), OlderUpstream(*row))
    return found


def lock(conn: Connection) -> None:
    """Prevent other sessions from recording upstreams until the transaction ends."""
    conn.execute(_SQL["lock"])


def names(conn: Connection) -> dict[int, str]:
    """Return the name of every stream table, by its id."""
    return dict(conn.execute(_SQL["names"]).fetchall())


def stream_tables_of(conn: Connection, relids: Iterable[int]) -> dict[int, int]:
    """Return the ids of the stream tables among these relations, by oid."""
    return dict(conn.execute(_SQL["stream_tables_of"], (list(relids),)).fetchall())


def queries_with_name(conn: Connection, name: str) -> list[tuple[int, str]]:
    """Return the stream tables whose query may contain this name: their ids and canonical queries."""
    return [(id, query) for id, query in conn.execute(_SQL["queries_with_name"], (name, name))]
