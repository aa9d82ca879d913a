"""Find code of other roles that would run in our sessions, with our rights.

Our session evaluates the functions that a query calls, the CHECK of a domain, the triggers on a
stream table. The owner of such code can replace it at any time, and the code runs with our rights.
`SET ROLE` does not protect against it, since the code can reset the role. So Millstream uses only
code with trusted owners, as PostgreSQL's manual recommends ("Function Security"):

    owner of the object                     trusted, because
    a superuser                             it has nothing to gain
    the role of our session                 the same
    a role that may SET ROLE to ours        the same
    a role in the setting trusted_roles     an administrator has said so

Tables and views may belong to any role: reading them runs only the functions that a view calls, and
these are checked. If other roles may create triggers on a stream table, it is locked against that
before it is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from millstream.catalog.definitions.definition_digests import Digests
from millstream.errors import ForeignCode
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.definitions", "foreign_code.sql")


@dataclass(frozen=True)
class ForeignObject:
    """An object whose owner is not trusted."""

    what: str
    owner: str


def check_under(conn: Connection, found: Digests, casts: Set[int], trusted: Sequence[str]) -> None:
    """Refuse a query that calls code of untrusted roles; `casts` are the types that it converts
    from or to.
    """
    wrong = under(conn, {0: found}, trusted, casts=casts)
    if wrong:
        raise ForeignCode.under_query(*_facts(conn, wrong[0]))


def under(
    conn: Connection,
    planned: Mapping[int, Digests],
    trusted: Sequence[str],
    *,
    casts: Set[int] = frozenset(),
) -> dict[int, list[ForeignObject]]:
    """Return, by id of a stream table, the untrusted code that its query calls, if there is any."""
    functions = {oid for own in planned.values() for kind, oid in own if kind == "function"}
    types = {oid for own in planned.values() for kind, oid in own if kind == "type"}
    if not (functions or types or casts):
        return {}
    asked = {
        "functions": list(functions),
        "types": list(types),
        "casts": list(casts),
        **_whom(conn, trusted),
    }
    wrong = {
        (kind, oid): ForeignObject(*rest) for kind, oid, *rest in conn.execute(_SQL["under"], asked)
    }
    everywhere = [foreign for (kind, _), foreign in wrong.items() if kind == "cast"]
    by_table = {
        id: [*(wrong[one] for one in own if one in wrong), *everywhere]
        for id, own in planned.items()
    }
    return {id: found for id, found in by_table.items() if found}


# Values of two types, for psycopg to adapt.
def _whom(conn: Connection, trusted: Sequence[str]) -> dict[str, Any]:
    return {"trusted": list(trusted), "how": how(conn)}


def on_tables(
    conn: Connection, relids: Sequence[int], trusted: Sequence[str]
) -> dict[int, list[ForeignObject]]:
    """Return, by oid of a table, the untrusted code that runs when its rows are written."""
    found = dict[int, list[ForeignObject]]()
    asked = {"relids": list(relids), **_whom(conn, trusted)}
    for relid, what, owner in conn.execute(_SQL["on_tables"], asked):
        found.setdefault(relid, []).append(ForeignObject(what, owner))
    return found


def open_tables(conn: Connection, relids: Sequence[int], trusted: Sequence[str]) -> set[int]:
    """Return those of these tables to which untrusted roles may attach code."""
    asked = {"relids": list(relids), **_whom(conn, trusted)}
    return {relid for (relid,) in conn.execute(_SQL["open_tables"], asked)}


def refused(
    conn: Connection, name: str, found: Sequence[ForeignObject], *, on_table: bool
) -> ForeignCode:
    """Return the error for a stream table with untrusted code."""
    return (ForeignCode.on_table if on_table else ForeignCode.under_table)(
        name, *_facts(conn, found)
    )


def _facts(conn: Connection, found: Sequence[ForeignObject]) -> tuple[list[str], list[str], str]:
    role = conn.execute("SELECT current_user::text").fetchall()[0][0]
    return sorted({one.what for one in found}), sorted({one.owner for one in found}), role


def how(conn: Connection) -> str:
    """Return the privilege that lets a role become another: since PostgreSQL 16, membership is not
    enough.
    """
    return "SET" if conn.info.server_version >= 160000 else "MEMBER"
