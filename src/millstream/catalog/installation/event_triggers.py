"""Event triggers: notify the service of DDL at once, and refuse DDL if the user wants that.

    millstream_announce_ddl, _drop    NOTIFY millstream_wake, 'ddl'
    millstream_block_ddl, _drop       with `block_source_ddl`: an error for changes of columns that stream tables read

Only superusers may create event triggers; on managed servers, the administrator's role may too.
They are optional: each refresh compares the definitions that its plan depends on with the current
ones. Dropping our schema drops them.
"""

from __future__ import annotations

from contextlib import suppress

from psycopg import errors, sql

from millstream.observe import log
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load

_SQL = load("millstream.catalog.installation", "event_triggers.sql")

_ALTERED = (
    "ALTER TABLE",
    "ALTER VIEW",
    "ALTER FUNCTION",
    "ALTER TYPE",
    "ALTER DOMAIN",
    "ALTER SCHEMA",
)
_CREATED = (
    "CREATE TABLE",
    "CREATE TABLE AS",
    "SELECT INTO",
    "CREATE VIEW",
    "CREATE FUNCTION",
    "CREATE TYPE",
)
_TAGS = (*_ALTERED, *_CREATED, "CREATE INDEX", "ALTER INDEX", "CREATE RULE", "GRANT", "REVOKE")

# Name -> event, function, tags (all if there are none).
_TRIGGERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "millstream_announce_ddl": ("ddl_command_end", "announce_ddl", _TAGS),
    "millstream_announce_drop": ("sql_drop", "announce_ddl", ()),
    "millstream_block_ddl": ("ddl_command_end", "block_source_ddl", ("ALTER TABLE",)),
    "millstream_block_drop": ("sql_drop", "block_source_ddl", ()),
}
NAMES = tuple(_TRIGGERS)


def put(conn: Connection) -> bool:
    """Create the missing event triggers, if the role may; return True if all exist."""
    may_create, found = _state(conn)
    missing = [name for name in NAMES if name not in found]
    if not missing or not may_create:
        return not missing
    # Another process may create them at the same time, or a managed server may refuse them to its
    # administrator's role.
    with (
        suppress(errors.InsufficientPrivilege, errors.DuplicateObject, errors.UniqueViolation),
        conn.transaction(),
    ):
        for name in missing:
            conn.execute(_creation(name))
        log.info("event triggers created", names=missing)
        return True
    return are_there(conn)


def are_there(conn: Connection) -> bool:
    """Return True if all event triggers exist and are enabled."""
    return set(NAMES) <= set(_state(conn)[1])


def _state(conn: Connection) -> tuple[bool, list[str]]:
    may_create, found = conn.execute(_SQL["state"]).fetchall()[0]
    return may_create, found


def _creation(name: str) -> sql.Composed:
    event, function, tags = _TRIGGERS[name]
    listed = sql.SQL(", ").join(map(sql.Literal, tags))
    return sql.SQL("CREATE EVENT TRIGGER {} ON {} {}EXECUTE FUNCTION {}()").format(
        sql.Identifier(name),
        sql.Identifier(event),
        sql.SQL("WHEN TAG IN ({}) ").format(listed) if tags else sql.SQL(""),
        sql.Identifier("millstream", function),
    )
