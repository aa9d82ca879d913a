"""Ask PostgreSQL whether the owner of a stream table may read what its query reads.

The query is explained under the owner's role, with its views as they are and not inlined. EXPLAIN
starts the executor, which checks everything that a run would check: rights on tables and columns,
EXECUTE on functions, USAGE of schemas; below a view the rights of the view's owner, or of the
caller where it is `security_invoker`. Our sessions have `row_security` off, so a policy that
applies to one of these roles is an error and hides no rows.

EXPLAIN evaluates functions of constants, so check for untrusted code first (see `foreign_code.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from millstream.algebra.table import quoted
from millstream.catalog.definitions.foreign_code import how
from millstream.errors import BadSetting, NoRights, OwnerLacksRight
from millstream.postgres.composed import Printed
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.definitions", "rights.sql")


def current_role(conn: Connection) -> str:
    """Return the current role of the session."""
    role: str = conn.execute("SELECT current_user::text").fetchall()[0][0]
    return role


def owner_for(conn: Connection, name: str | None) -> str:
    """Return the owner of a new stream table: the named role, or the session's own.

    Raise if the session may not act as that role.
    """
    row = conn.execute(_SQL["role"], {"name": name, "how": how(conn)}).fetchone()
    if row is None:
        raise BadSetting.of("owner", name, "the name of a role that exists")
    owner, may_become, has_rights = row
    if not (may_become and has_rights):
        raise not_a_member(conn, owner)
    return str(owner)


def not_a_member(conn: Connection, owner: str) -> NoRights:
    """Return the error for an owner of which the session's role is not a member."""
    role = current_role(conn)
    return NoRights.to(
        f'maintain a stream table of role "{owner}"',
        role=role,
        grant=f"GRANT {quoted(owner)} TO {quoted(role)};",
        reason="Millstream checks privileges and writes rows as that role, which needs membership in it.",
    )


def owners(conn: Connection, relids: Sequence[int]) -> dict[int, str]:
    """Return the name of each table's owner, by oid."""
    return dict(conn.execute(_SQL["owners"], (list(relids),)).fetchall())


def check(conn: Connection, query: str, owner: str) -> None:
    """Raise unless PostgreSQL lets a role run a query whose names are qualified."""
    become = sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(owner))
    is_member = False
    try:
        # The savepoint is rolled back, which resets the role too.
        with conn.transaction(force_rollback=True):
            conn.execute(become)
            is_member = True
            conn.execute(sql.SQL("EXPLAIN (COSTS OFF) {}").format(Printed(query)))
    except psycopg.errors.InsufficientPrivilege as error:
        if not is_member:
            raise not_a_member(conn, owner) from error
        reason = error.diag.message_primary or str(error)
        # Recognized by the name of the server's C function, since the message may be in any
        # language.
        is_policy = error.diag.source_function == "check_enable_rls"
        told = OwnerLacksRight.by_policy if is_policy else OwnerLacksRight.to_read
        raise told(owner, reason) from error


def with_policies(conn: Connection, relids: Sequence[int]) -> dict[int, str]:
    """Return the names of the tables with row-level security."""
    return dict(conn.execute(_SQL["policies"], (list(relids),)).fetchall())


def note(name: str) -> str:
    """Return the note about a stream table over a table with row-level security."""
    return (
        f"Table {name} has row-level security, which does not apply here: the stream table holds all of its rows, and "
        "whoever may read the stream table sees them."
    )
