"""Decide whether the catalog in this database may be trusted, before anything in it is used.

The owner of a catalog can have code run by every session that uses it: a trigger, a view in place
of a table, a policy. So a session uses only a catalog whose owner would gain nothing by that:

    owner of schema millstream       session of                  outcome
    mill                             mill                        trusted
    a superuser                      a member of that role       trusted: a superuser has nothing to gain
    mill                             a superuser                 refused: mill would become superuser
    mill                             a member of mill            refused: mill would get that member's rights
    mill                             any other role              may not read it at all

Everything in the three schemas must then belong to that owner or to a superuser, including the
functions of triggers and the tables of foreign keys that refer to ours. No other role may create or
write there, or create a trigger.

One query of the system catalogs decides this. It runs at the start of every command, so that it
also finds privileges granted and objects created since.
"""

from __future__ import annotations

from millstream.errors import NoRights, UntrustedCatalog
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.installation", "trust.sql")


def check(conn: Connection) -> bool:
    """Raise if the catalog may not be trusted; return whether there is one."""
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
