"""An error of PostgreSQL that nobody on the way has made one of ours."""

from __future__ import annotations

import psycopg

from millstream.errors import MillstreamError, NoRights

RIGHTS = "Ask an administrator for the right that is named; `millstream doctor` looks at those of the database."
OTHER = "The server's log may tell more."


def ours(error: psycopg.Error) -> MillstreamError:
    """The same in the server's own words, as an error that a command ends in."""
    said = error.diag
    message = said.message_primary or str(error).strip() or type(error).__name__
    detail = " ".join(filter(None, (said.message_detail, said.context)))
    lacks_rights = isinstance(error, psycopg.errors.InsufficientPrivilege)
    kind, hint = (NoRights, RIGHTS) if lacks_rights else (MillstreamError, OTHER)
    return kind(message, detail=detail, hint=said.message_hint or hint, sqlstate=error.sqlstate or "")
