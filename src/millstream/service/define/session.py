"""The session that asks for a stream table: how names in its query are looked up, and its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millstream.catalog.stream_tables import StreamTable
from millstream.compiler.server import queries
from millstream.compiler.server.plan_query import QueryPlan, Terms, plan_query
from millstream.errors import BadSetting
from millstream.postgres import session_settings
from millstream.postgres.connection import along
from millstream.service.app import App


@dataclass(frozen=True)
class AskingSession:
    """The session of a role that asks the service; without values, the connection of the API."""

    search_path: str | None = None
    """Names in a query are looked up along it; None for that of our own session."""
    settings: object = None
    """Its session settings, by name; None for those that the dsn gives a session."""


OWN = AskingSession()


@dataclass(frozen=True)
class Pinned:
    """What is recorded with a definition: session settings, and functions declared immutable."""

    settings: Mapping[str, str] = field(default_factory=dict)
    assumed: Sequence[str] = ()


def plan(
    app: App, query: str, owner: str | None, session: AskingSession, pinned: Pinned
) -> QueryPlan:
    """Plan a query as the session that asks reads it; `pinned` overrides its settings."""
    asked = session.settings
    found = session_settings.of_user(app.dsn) if asked is None else asked
    with along(app.conn, session.search_path):
        settings = {**session_settings.resolved(app.conn, found), **pinned.settings}
        terms = Terms(owner, app.settings.trusted_roles, settings, pinned.assumed)
        return plan_query(app.conn, query, terms=terms)


def assumed(app: App, session: AskingSession, names: object) -> list[str]:
    """Return the functions that a user declares immutable, by name and arguments.

    Raise BadSetting for a function of the server, or a volatile one.
    """
    if names is None:
        return []
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise BadSetting.of("assume_immutable", names, "a list of functions")
    with along(app.conn, session.search_path):
        found = queries.named_functions(app.conn, list(map(str, names)))
    for function in found:
        if function.schema == "pg_catalog" or function.volatility == "volatile":
            raise BadSetting.of(
                "assume_immutable", function.name, "a STABLE function that is not the server's own"
            )
    return [function.name for function in found]


def check_assumed(app: App, table: StreamTable, session: AskingSession, names: object) -> None:
    """Raise BadSetting if other functions are declared immutable than are recorded."""
    if names is not None and assumed(app, session, names) != list(table.assume_immutable):
        expected = "those that are recorded: drop the stream table, and create it with others"
        raise BadSetting.of("assume_immutable", names, expected)


def checked(app: App, session: AskingSession, given: object) -> dict[str, str]:
    """Return the settings that a user gives for a definition, as the server writes them."""
    with along(app.conn, session.search_path):
        return session_settings.checked(app.conn, given)
