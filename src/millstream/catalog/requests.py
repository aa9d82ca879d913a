"""Rows of millstream.requests: what roles have asked the service for, and the answers.

WAITING -> RUNNING -> DONE, with a result
   ^          |  \\-> FAILED, with an error
   +----------+  the service ended during the request: the next one executes it again
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from psycopg.types.json import Jsonb

from millstream.errors import NoSuchRequest
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

Kind: TypeAlias = Literal[
    "create", "create_or_replace", "alter", "drop", "refresh", "verify", "validate", "explain_query"
]

# JSON values have many types.
Document: TypeAlias = Mapping[str, Any]

_SQL = load("millstream.catalog", "requests.sql")


@dataclass(frozen=True)
class OpenRequest:
    """A request without an answer, with what decides whether it may begin."""

    id: int
    kind: Kind
    stream_table: str | None
    """The name as it was given."""


@dataclass(frozen=True)
class Request:
    """A request that the service begins to execute."""

    id: int
    kind: Kind
    stream_table: str | None
    """The name as it was given."""
    arguments: Document
    search_path: str
    """Of the session that asked: a list of quoted schema names."""
    requested_by: str
    begun_at: datetime
    """When a service first began it."""
    tries: int
    """How often a service has begun it before."""


@dataclass(frozen=True)
class RequestedTable:
    """The stream table that a request names."""

    id: int
    relid: int | None
    created_at: datetime


@dataclass(frozen=True)
class AskersRights:
    """The rights of the role that asks."""

    may_ask: bool
    owns: bool
    """It has the rights of the stream table's owner."""
    administers: bool
    """It has the rights of the catalog's owner."""


@dataclass(frozen=True)
class NewName:
    """The schema and name of a stream table to be created."""

    schema: str | None
    name: str
    schema_exists: bool
    may_create: bool


@dataclass(frozen=True)
class Answer:
    """The state of a request; once it is answered, one of result and error is set."""

    status: str
    result: Document | None
    error: Document | None


def send(conn: Connection, kind: str, name: str, arguments: Mapping[str, object]) -> int:
    """Insert a request of the current role; return its id."""
    given = Jsonb({argument: value for argument, value in arguments.items() if value is not None})
    id_: int = conn.execute(_SQL["send"], (kind, name, given)).fetchall()[0][0]
    return id_


def look(conn: Connection, id: int) -> Answer:
    """Return the state of a request. Raise NoSuchRequest if it was removed."""
    row = conn.execute(_SQL["look"], (id,)).fetchone()
    if row is None:
        raise NoSuchRequest.numbered(id)
    return Answer(*row)


def service_is_running(conn: Connection) -> bool:
    """Return True if a service runs for this database, as leader or as standby."""
    found: bool = conn.execute(_SQL["service_is_running"]).fetchall()[0][0]
    return found


def waiting(conn: Connection) -> list[OpenRequest]:
    """Return the oldest requests of each role that no service has begun, oldest first."""
    found = [OpenRequest(*row) for row in conn.execute(_SQL["waiting"])]
    return sorted(found, key=lambda request: request.id)


def start(conn: Connection, id: int) -> Request | None:
    """Mark a request as RUNNING and return it; None if it is no longer WAITING."""
    row = conn.execute(_SQL["start"], (id,)).fetchone()
    return Request(*row) if row else None


def succeed(conn: Connection, id: int, result: Document) -> None:
    """Answer a request with a result."""
    conn.execute(
        _SQL["answer"],
        {"id": id, "status": "DONE", "result": Jsonb(result, dumps=_dumps), "error": None},
    )


def fail(conn: Connection, id: int, error: Document) -> None:
    """Answer a request with an error."""
    conn.execute(
        _SQL["answer"],
        {"id": id, "status": "FAILED", "result": None, "error": Jsonb(error, dumps=_dumps)},
    )


def put_back(conn: Connection, id: int) -> None:
    """Set a running request to WAITING again, without counting the try."""
    conn.execute(_SQL["put_back"], (id,))


def take_up(conn: Connection, most_tries: int, id: int | None = None) -> None:
    """Set requests that were begun and not answered, or one of them, to WAITING again, unless they
    were begun that often.
    """
    conn.execute(_SQL["take_up"], {"most_tries": most_tries, "id": id})


def interrupted(conn: Connection, id: int | None = None) -> list[OpenRequest]:
    """Return the requests that a service has begun and not answered; only the one with this id, if
    given.
    """
    return [OpenRequest(*row) for row in conn.execute(_SQL["interrupted"], {"id": id})]


def prune(conn: Connection, retention: timedelta) -> int:
    """Remove the requests that were answered longer ago than this; return how many."""
    return conn.execute(_SQL["prune"], (retention,)).rowcount


def target(conn: Connection, request: Request) -> RequestedTable | None:
    """Return the stream table that a request names; None if there is none of that name."""
    row = conn.execute(_SQL["target"], (request.stream_table, request.search_path)).fetchone()
    return RequestedTable(*row) if row else None


def rights(conn: Connection, request: Request, relid: int | None) -> AskersRights | None:
    """Return what the role that asks may do to a table; None if that role no longer exists."""
    row = conn.execute(
        _SQL["rights"],
        {
            "role": request.requested_by,
            "kind": request.kind,
            "arguments": Jsonb(request.arguments),
            "relid": relid,
        },
    ).fetchone()
    return AskersRights(*row) if row else None


def new_name(conn: Connection, request: Request, owner: str) -> NewName:
    """Return where the stream table that a request names would be created."""
    names = {"name": request.stream_table, "path": request.search_path, "role": owner}
    return NewName(*conn.execute(_SQL["new_name"], names).fetchall()[0])


def _dumps(value: object) -> str:
    # jsonb cannot contain the character NUL.
    return json.dumps(value, default=str).replace("\\u0000", "\\ufffd")
