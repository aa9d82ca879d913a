"""Grant privileges on the catalog to two roles that administrators create, and to the owners of
stream tables.

    millstream_reader      how stream tables, sources and the slot stand; no row, no query, no text of an error
    millstream_operator    the same; and to ask the service for work, and wait for its answers
    owners                 to ask for work on their stream tables, and wait for the answers

Install creates neither of the two: a role belongs to the whole server, and creating one takes a
privilege that the service role does not need. If the roles exist, they are granted these privileges
at the start of the next command, see decision 39.

A role with ADMIN OPTION on such a role can add members to it. If such an administrator is not a
member of the catalog's owner, the role was not created for this catalog, and is granted nothing. An
owner of stream tables may ask only for what its own rights allow, so this check is not needed for
owners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from psycopg import sql

from millstream.observe import log
from millstream.postgres.composed import Printed, listed
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

READER, OPERATOR = "millstream_reader", "millstream_operator"

Kind: TypeAlias = Literal["reader", "operator", "owner"]

REQUEST_COLUMNS = ("kind", "stream_table", "arguments", "search_path")
"""Columns of the view of requests that those who ask write.

The others they cannot: who asks is one of them.
"""

VIEWS = (
    "millstream.stream_tables_info",
    "millstream.refresh_history_info",
    "millstream.pg_stat_stream_tables",
    "millstream.blocks_info",
)
FUNCTIONS = (
    "millstream.slot_health()",
    "millstream.check_cdc_health()",
    "millstream.stream_table_id(text, name[])",
    "millstream.needs_reinit(bigint)",
    "millstream.staleness_of(bigint)",
    "millstream.status()",
    "millstream.get_staleness(text, name[])",
    "millstream.get_refresh_history(text, integer, name[])",
    "millstream.st_refresh_stats(interval)",
    "millstream.explain_st(text, name[])",
    "millstream.held_back_buffers()",
    "millstream.service_status()",
    "millstream.health_check()",
)
"""What both roles may read and call: it shows no value of a row."""

_WAITING = (
    "wait_for",
    "wait_visible",
    "is_visible",
    "is_captured",
    "service_is_running",
    "raise_answer",
)
_ON_TABLES = (
    "request",
    "alter_stream_table",
    "drop_stream_table",
    "refresh_stream_table",
    "verify_stream_table",
)
_NEW_TABLES = (
    "create_stream_table",
    "create_or_replace_stream_table",
    "validate_query",
    "explain_query",
)
_LOOKING = tuple(function.removeprefix("millstream.").partition("(")[0] for function in FUNCTIONS)
ROUTINES: dict[Kind, tuple[str, ...]] = {
    "reader": (*_LOOKING, "wait_visible", "is_visible", "is_captured", "service_is_running"),
    "operator": (*_LOOKING, *_WAITING, *_ON_TABLES, *_NEW_TABLES),
    "owner": (*_WAITING, *_ON_TABLES),
}
"""The functions and procedures of schema millstream that each may call."""
READABLE: dict[Kind, tuple[str, ...]] = {
    "reader": VIEWS,
    "operator": (*VIEWS, "millstream.own_requests"),
    "owner": ("millstream.own_requests",),
}
"""The views that each may read."""

_SQL = load("millstream.catalog.installation", "roles.sql")


def grant(conn: Connection) -> None:
    """Grant the missing privileges, in a transaction."""
    if not _lacking(conn):
        return
    # If two sessions grant privileges on the same object at once, the second fails. So it waits
    # here, and then finds nothing to do.
    conn.execute("LOCK TABLE millstream.migrations IN SHARE ROW EXCLUSIVE MODE")
    for role, kind in _lacking(conn):
        for statement in _grants(conn, kind):
            conn.execute(statement + sql.SQL(" TO ") + sql.Identifier(role))


def _lacking(conn: Connection) -> list[tuple[str, Kind]]:
    """Return the roles that lack privileges."""
    found = conn.execute(
        _SQL["lacking"],
        {
            "routines": [f"{kind} {name}" for kind, names in ROUTINES.items() for name in names],
            "views": [f"{kind} {name}" for kind, names in READABLE.items() for name in names],
        },
    ).fetchall()
    for role, _, others in found:
        if others:
            log.warning(
                "a role is granted nothing: others can add members to it", role=role, others=others
            )
    return [(role, kind) for role, kind, others in found if not others]


def _grants(conn: Connection, kind: Kind) -> Sequence[sql.Composable]:
    views = listed(sql.Identifier(*name.split(".")) for name in READABLE[kind])
    statements: list[sql.Composable] = [
        sql.SQL("GRANT USAGE ON SCHEMA millstream"), sql.SQL("GRANT SELECT ON TABLE {}").format(views)
    ]  # fmt: skip
    # As the server prints them, with the types of their arguments.
    for (routine,) in conn.execute(_SQL["routines"], (list(ROUTINES[kind]),)).fetchall():
        statements.append(sql.SQL("GRANT EXECUTE ON ROUTINE {}").format(Printed(routine)))
    if "millstream.own_requests" in READABLE[kind]:
        columns = listed(map(sql.Identifier, REQUEST_COLUMNS))
        statements.append(
            sql.SQL("GRANT INSERT ({}) ON TABLE millstream.own_requests").format(columns)
        )
    return statements
