"""Grant two roles what they may read of the catalog, where an administrator has created them.

    millstream_reader      how stream tables, sources and the slot stand; no row, no query, no text of an error
    millstream_operator    the same; and to ask the service for work, once there are functions to ask by

Install creates neither: a role belongs to the whole server, and creating one takes a right that the service role need
not have. Where they exist they are granted these rights at the start of the next command, see decision 39.

Anybody with ADMIN OPTION on such a role can make others members of it. Where such an administrator is not a member of
the catalog's owner, the role was not made for this catalog, and is granted nothing.
"""

from __future__ import annotations

from psycopg import sql

from millstream.observe import log
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

READER, OPERATOR = "millstream_reader", "millstream_operator"

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
    "millstream.status()",
    "millstream.get_staleness(text, name[])",
    "millstream.get_refresh_history(text, integer, name[])",
    "millstream.st_refresh_stats(interval)",
    "millstream.explain_st(text, name[])",
)
"""What both roles may read and call: it shows no value of a row."""

_SQL = load("millstream.catalog.installation", "roles.sql")
_GRANTS = (
    "GRANT USAGE ON SCHEMA millstream TO {}",
    f"GRANT SELECT ON TABLE {', '.join(VIEWS)} TO {{}}",
    f"GRANT EXECUTE ON FUNCTION {', '.join(FUNCTIONS)} TO {{}}",
)


def grant(conn: Connection) -> None:
    """Grant what is lacking, in a transaction."""
    if not _lacking(conn):
        return
    # Of two who grant rights on the same object at once, the second fails. So it waits here, and finds nothing to do.
    conn.execute("LOCK TABLE millstream.migrations IN SHARE ROW EXCLUSIVE MODE")
    for role in _lacking(conn):
        for statement in _GRANTS:
            conn.execute(sql.SQL(statement).format(sql.Identifier(role)))


def _lacking(conn: Connection) -> list[str]:
    """The roles to be granted their rights."""
    found: list[tuple[str, list[str]]] = conn.execute(
        _SQL["lacking"], {"roles": [READER, OPERATOR], "views": list(VIEWS), "functions": list(FUNCTIONS)}
    ).fetchall()
    for role, others in found:
        if others:
            log.warning("a role is granted nothing: others can add members to it", role=role, others=others)
    return [role for role, others in found if not others]
