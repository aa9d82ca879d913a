"""The session that asks for a stream table: how names in its query are looked up, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.compiler.server.plan_query import QueryPlan, Terms, plan_query
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


def plan(
    app: App,
    query: str,
    owner: str | None,
    session: AskingSession,
    pinned: Mapping[str, str],
) -> QueryPlan:
    """Plan a query as the session that asks reads it; `pinned` overrides its settings."""
    asked = session.settings
    found = session_settings.of_user(app.dsn) if asked is None else asked
    with along(app.conn, session.search_path):
        settings = {**session_settings.resolved(app.conn, found), **pinned}
        terms = Terms(owner, app.settings.trusted_roles, settings)
        return plan_query(app.conn, query, terms=terms)


def checked(app: App, session: AskingSession, given: object) -> dict[str, str]:
    """Return the settings that a user gives for a definition, as the server writes them."""
    with along(app.conn, session.search_path):
        return session_settings.checked(app.conn, given)
