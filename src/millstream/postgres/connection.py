"""Connections to PostgreSQL, all with the same pinned session settings.

A role or a database may have its own DateStyle, TimeZone or row_security. A value must look the
same in every session, so settings that affect how values are printed are set in the startup packet.

A client that dies must not keep locks: TCP keepalives notice a failed machine within half a minute,
and the server checks every second, also during a statement, whether its client still exists
(`WATCHFUL`).

In our own sessions the search_path is pinned too, so a name in our statements means the server's
own function, whatever objects other roles have created. The user's queries are parsed with the
user's search_path, in `users_path`.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from millstream.errors import BadSetting, ServerDown, WrongVersion

OLDEST, NEWEST = 15, 18

# Rows are tuples of whatever the statement selects.
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]

PINNED = {
    "DateStyle": "ISO,MDY",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    # A policy would hide rows from us silently; with this it is an error.
    "row_security": "off",
    "client_min_messages": "warning",
    "idle_in_transaction_session_timeout": "0",
    "statement_timeout": "0",
    "idle_session_timeout": "0",
    "lock_timeout": "0",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    # An error would end the session, and many of ours are expected.
    "exit_on_error": "off",
    # A limit would drop rows of index scans at random.
    "gin_fuzzy_search_limit": "0",
    # What decides how the server reads and prints SQL text of ours.
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "backslash_quote": "safe_encoding",
    "xmloption": "content",
    # Without an effect on a socket, and on a platform that lacks them.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}
# Settings that came with a version; a startup option of an unknown name is an error.
PINNED_SINCE = {170000: {"transaction_timeout": "0"}}
# Of libpq, for this side of the connection; the dsn may have others. Milliseconds, the others
# seconds.
KEEPALIVES = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}
# Settings that a server refuses, or complains of in its log, on a platform that lacks them.
WATCHFUL = (
    ("client_connection_check_interval", "1s", "linux|darwin|bsd"),
    ("tcp_user_timeout", "30s", "linux"),
)
OWN_PATH = "pg_catalog, pg_temp"
# At most. What we look up are neighbours of rows that have just been written, mostly in memory; as
# for a turning disk (4, the server's own), some thousand keys are looked for in all of a table of
# millions.
RANDOM_PAGE_COST = 1.1


def pinned(
    dsn: str, *, version: int = 0, application_name: str = "millstream", **settings: str
) -> str:
    """Return the dsn with our settings, our search_path and further ones; works for any libpq
    client.

    `version` is the server's, where it is known: what came with a version is pinned from that
    version on.
    """
    newer = pinned_since(version)
    return _with_settings(
        dsn, application_name, {**PINNED, **newer, "search_path": OWN_PATH, **settings}
    )


def pinned_since(version: int) -> dict[str, str]:
    """Return the settings that this server version has and older ones lack."""
    return {
        name: value
        for since, own in PINNED_SINCE.items()
        if version >= since
        for name, value in own.items()
    }


def pin_newer(conn: Connection) -> None:
    """Set what this server version has and older ones lack, in an open session."""
    for name, value in pinned_since(conn.info.server_version).items():
        conn.execute(sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))


def _with_settings(dsn: str, application_name: str, settings: Mapping[str, str]) -> str:
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # Neither the string nor libpq's complaint, which quotes it: there may be a password in it.
        raise BadSetting.of(
            "dsn", "...", "a connection string such as postgresql://user@host/database"
        ) from None
    options = " ".join(f"-c {name}={_escaped(value)}" for name, value in settings.items())
    given = parts.pop("options", None)
    parts.setdefault("application_name", application_name)
    parts.setdefault("connect_timeout", "10")
    for name, value in KEEPALIVES.items():
        parts.setdefault(name, value)
    parts["client_encoding"] = "UTF8"
    return make_conninfo("", **parts, options=f"{given} {options}" if given else options)


def _escaped(value: str) -> str:
    """Return a value as the server reads it in its startup options."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


# By dsn: the version of the server, which is known once it was connected to.
_versions = dict[str, int]()


def connect(dsn: str, *, application_name: str = "millstream") -> Connection:
    """Open a connection in autocommit mode, to a server of a version we know."""
    known = _versions.get(dsn, 0)
    connection = _connected(dsn, application_name, known)
    version = connection.info.server_version
    if not OLDEST <= version // 10000 <= NEWEST:
        connection.close()
        raise WrongVersion.of(version, OLDEST, NEWEST)
    if pinned_since(version) != pinned_since(known):
        connection = _pinned_too(connection, dsn, application_name)
    _versions[dsn] = version
    _watch(connection)
    return connection


def connect_unpinned(dsn: str, names: Collection[str]) -> Connection:
    """Open a connection with these settings as role, database and dsn have them."""
    return _connected(dsn, "millstream settings", _versions.get(dsn, 0), unpinned=names)


def _connected(
    dsn: str, application_name: str, version: int, *, unpinned: Collection[str] = ()
) -> Connection:
    pinned = {**PINNED, **pinned_since(version)}
    settings = {name: value for name, value in pinned.items() if name not in unpinned}
    try:
        return psycopg.connect(_with_settings(dsn, application_name, settings), autocommit=True)
    except psycopg.OperationalError as error:
        if any(name in str(error) for name in pinned_since(version)):
            # The server is an older one by now.
            return _connected(dsn, application_name, 0, unpinned=unpinned)
        raise ServerDown.unreachable(without_password(dsn), str(error)) from error


def _pinned_too(first: Connection, dsn: str, application_name: str) -> Connection:
    """Return a connection like the first, with the settings of its server's version in its startup
    packet.

    Where there is room for no other one, they are set in the first. A statement may come too late:
    a role's transaction_timeout of a millisecond ends that, too.
    """
    try:
        second = _connected(dsn, application_name, first.info.server_version)
    except ServerDown:
        pin_newer(first)
        return first
    first.close()
    return second


def _watch(conn: Connection) -> None:
    """Have the server look after its client, as far as its platform can."""
    names, values, platforms = zip(*WATCHFUL, strict=True)
    conn.execute(
        # Qualified: the path is not ours yet.
        "SELECT pg_catalog.set_config(n, v, false)"
        " FROM ROWS FROM (pg_catalog.unnest(%s::pg_catalog.text[]), pg_catalog.unnest(%s::pg_catalog.text[]),"
        " pg_catalog.unnest(%s::pg_catalog.text[])) AS s (n, v, platform)"
        " WHERE pg_catalog.version() OPERATOR(pg_catalog.~*) platform",
        (list(names), list(values), list(platforms)),
    )


def watchful(conn: Connection) -> dict[str, str]:
    """Return the settings by which the server looks after its clients, as a session of ours has
    them.

    They are for other sessions on the same server.
    """
    query = "SELECT name, pg_catalog.current_setting(name) FROM pg_catalog.unnest(%s::pg_catalog.text[]) AS name"
    found: dict[str, str] = dict(conn.execute(query, ([name for name, *_ in WATCHFUL],)).fetchall())
    return {name: value for name, value in found.items() if value != "0"}


def without_password(dsn: str) -> str:
    """Return the connection string without its password."""
    parts = conninfo_to_dict(dsn)
    return make_conninfo(
        "", **{name: value for name, value in parts.items() if "password" not in name}
    )


def hang_up(conn: Connection) -> None:
    """End a session's traffic from another thread than the one that may hang in it: that one finds
    it closed.
    """
    with (
        # It may be closed already.
        contextlib.suppress(OSError, psycopg.OperationalError),
        socket.socket(fileno=os.dup(conn.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)


# -- our path and the user's -----------------------------------------------------------------

# The session remembers the path that role, database and dsn gave it.
_USERS_PATH = "millstream.users_path"


def session(dsn: str) -> Connection:
    """Open a connection for our own statements, which find only the server's functions.

    They are not compiled: LLVM takes up to a second for one, and most of ours run for milliseconds.
    """
    conn = connect(dsn)
    # Qualified: the path is not ours yet.
    conn.execute(
        "SELECT pg_catalog.set_config(%s, pg_catalog.current_setting('search_path'), false),"
        " pg_catalog.set_config('search_path', %s, false),"
        " pg_catalog.set_config('random_page_cost',"
        " LEAST(pg_catalog.current_setting('random_page_cost')::pg_catalog.float8, %s)::pg_catalog.text, false),"
        " pg_catalog.set_config('jit', 'off', false)",
        (_USERS_PATH, OWN_PATH, RANDOM_PAGE_COST),
    )
    return conn


@contextmanager
def users_path(conn: Connection) -> Iterator[None]:
    """Open a transaction or savepoint with the user's search_path."""
    with conn.transaction():
        former, users = conn.execute(_PATHS, (_USERS_PATH,)).fetchall()[0]
        conn.execute("SELECT pg_catalog.set_config('search_path', %s, true)", (users or former,))
        conn.execute(_WITHOUT_OURS)
        yield
        conn.execute("SELECT pg_catalog.set_config('search_path', %s, true)", (former,))


@contextmanager
def along(conn: Connection, path: str | None) -> Iterator[None]:
    """Let `users_path` be another one than that of the session, if one is given."""
    if path is None:
        yield
        return
    former = conn.execute("SELECT pg_catalog.current_setting(%s, true)", (_USERS_PATH,)).fetchall()[
        0
    ][0]
    # An empty path would be none of the user's.
    conn.execute("SELECT pg_catalog.set_config(%s, %s, false)", (_USERS_PATH, path or OWN_PATH))
    try:
        yield
    finally:
        if not conn.closed:
            conn.execute("SELECT pg_catalog.set_config(%s, %s, false)", (_USERS_PATH, former))


_PATHS = "SELECT pg_catalog.current_setting('search_path'), pg_catalog.current_setting(%s, true)"
# A role named millstream has the catalog's schema first on its path, and tables named `sources` in
# it.
_WITHOUT_OURS = (
    "SELECT pg_catalog.set_config('search_path', pg_catalog.array_to_string(ARRAY("
    "SELECT pg_catalog.quote_ident(s) FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) AS s"
    " WHERE s OPERATOR(pg_catalog.<>) ALL ('{millstream,millstream_changes,millstream_state}')), ', '), true)"
)
