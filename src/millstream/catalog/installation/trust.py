"""Decide whether the catalog in this database may be trusted, before anything in it is touched.

Whoever owns a catalog can have code run by everybody who works with it: a trigger, a view in place
of a table, a policy. So a session works only with a catalog whose owner could not gain by that:

    owner of schema millstream       session of                  outcome
    mill                             mill                        trusted
    a superuser                      a member of that role       trusted: a superuser has nothing to gain
    mill                             a superuser                 refused: mill would become superuser
    mill                             a member of mill            refused: mill would get that member's rights
    mill                             anybody else                may not even look

Everything in the three schemas must then belong to that owner or to a superuser, triggers by their
functions and foreign keys by the tables that refer to ours, and nobody else may create, write, or
put a trigger there.

The answer takes one query of the server's own catalog. It is asked at the start of every command,
so that a right granted or an object made since is found too.
"""

from __future__ import annotations

from millstream.errors import NoRights, UntrustedCatalog
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.installation", "trust.sql")


def check(conn: Connection) -> bool:
    """Raise if the catalog is not to be trusted; return whether there is one."""
    row = conn.execute(_SQL["standing"], prepare=True).fetchall()[0]
    exists, owner, role, session_role, is_member, is_trusted, findings = row
    if not exists:
        return False
    if not is_member:
        raise NoRights.to_catalog(owner, role)
    if not is_trusted:
        raise UntrustedCatalog.owned_by(owner, session_role)
    if findings:
        raise UntrustedCatalog.holding(
            [what for what, _ in findings], list(dict.fromkeys(remedy for _, remedy in findings))
        )
    return True
