"""The session settings that the result of a query can depend on.

`date_trunc('day', t)` of a timestamptz is another time in another time zone. A stream table records
such settings with its definition, and its query is evaluated with them in every session:

    with under(conn, {"TimeZone": "Europe/Berlin"}):
        ...

Outside, our sessions have the settings of `connection.PINNED`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg
from psycopg.pq import TransactionStatus

from millstream.errors import BadSetting
from millstream.postgres.connection import Connection, connect_unpinned, users_path

NAMES = (
    "TimeZone",
    "timezone_abbreviations",
    "DateStyle",
    "IntervalStyle",
    "extra_float_digits",
    "bytea_output",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "default_text_search_config",
    "xmloption",
    "xmlbinary",
    "array_nulls",
)
"""The settings that may be recorded, as the server writes their names."""

# Values travel as text within a refresh: the text must say the value exactly.
_ISO = "a style that begins with ISO, such as ISO, DMY"
_STYLES = ("DateStyle", "IntervalStyle")
_ALL_DIGITS = "1, 2 or 3: fewer digits would not say a number exactly"


def checked(conn: Connection, given: object) -> dict[str, str]:
    """Return settings that a user gives, as the server writes them.

    Raise BadSetting for a name that is not in `NAMES`, and for a value that the server refuses.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadSetting.of("settings", given, 'names and values: {"TimeZone": "Europe/Berlin"}')
    return {name: _value(conn, name, value) for name, value in _named(given).items()}


def _named(given: Mapping[object, object]) -> dict[str, object]:
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if not isinstance(name, str) or name.lower() not in known:
            raise BadSetting.of("settings", name, f"one of {', '.join(NAMES)}")
    return {known[str(name).lower()]: value for name, value in given.items()}


def _value(conn: Connection, name: str, value: object) -> str:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise BadSetting.of(f"settings.{name}", value, "a text")
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(_SET, (name, str(value)))
            found = str(conn.execute(_SHOW, (name,)).fetchall()[0][0])
            if name == "default_text_search_config":
                found = _qualified_configuration(conn, found)
    except (psycopg.DataError, psycopg.ProgrammingError) as error:
        said = error.diag.message_primary or str(error)
        raise BadSetting.of(f"settings.{name}", value, f"a value of the server ({said})") from error
    if wanted := _inexact(name, found):
        raise BadSetting.of(f"settings.{name}", value, wanted)
    return found


def _qualified_configuration(conn: Connection, name: str) -> str:
    """Return the name of a text search configuration with its schema, looked up as the user does."""
    with users_path(conn):
        return str(conn.execute(_CONFIGURATION, (name,)).fetchall()[0][0])


def _inexact(name: str, value: str) -> str:
    """Return what is expected instead, where texts of this setting do not say all values exactly."""
    if name == "DateStyle" and not value.startswith("ISO"):
        return _ISO
    if name == "extra_float_digits" and int(value) < 1:
        return _ALL_DIGITS
    return ""


def resolved(conn: Connection, session: object) -> dict[str, str]:
    """Return the settings of a session that asks, as ours can have them.

    Raise BadSetting for values that the server refuses.
    """
    if not isinstance(session, Mapping):
        raise BadSetting.of("session", session, "names and values of session settings")
    found = {name: str(session[name]) for name in NAMES if session.get(name) is not None}
    try:
        with conn.transaction(force_rollback=True):
            if configuration := found.get("default_text_search_config"):
                found["default_text_search_config"] = _qualified_configuration(conn, configuration)
            conn.execute(_SET_ALL, (list(found), list(found.values())))
    except (psycopg.DataError, psycopg.errors.UndefinedObject) as error:
        said = error.diag.message_primary or str(error)
        raise BadSetting.of("session", said, "settings of the server") from error
    return found


def of_session(conn: Connection) -> dict[str, str]:
    """Return what a session has."""
    rows = conn.execute(_SHOW_ALL, (list(NAMES),)).fetchall()
    return {name: value for name, value in rows if value is not None}


def of_user(dsn: str) -> dict[str, str]:
    """Return what a session of the user has: set by role, database, dsn or environment.

    Our own sessions do not show it, since they pin these settings when they start.
    """
    with connect_unpinned(dsn, NAMES) as conn:
        return of_session(conn)


def chosen(conn: Connection, names: frozenset[str], asked: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of these names: as asked, otherwise as the session has them.

    Raise BadSetting if one has a value with which texts do not say all values exactly.
    """
    own = of_session(conn)
    found = {name: asked.get(name, own[name]) for name in NAMES if name in names and name in own}
    for name, value in found.items():
        if wanted := _inexact(name, value):
            why = f"The session has it, and the query's result depends on {name}."
            raise BadSetting.of(f"settings.{name}", value, wanted, detail=why)
    return found


def without_styles(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings without those that hinder our own statements: the driver reads times and
    intervals in one style only.
    """
    return {name: value for name, value in settings.items() if name not in _STYLES}


@contextmanager
def under(conn: Connection, settings: Mapping[str, str]) -> Iterator[None]:
    """Give the session these settings within the block, which is in a transaction."""
    if not settings:
        yield
        return
    names, values = list(settings), list(settings.values())
    former: dict[str, str] = dict(conn.execute(_SHOW_ALL, (names,)).fetchall())
    conn.execute(_SET_ALL, (names, values))
    try:
        yield
    finally:
        # In a failed transaction or savepoint they are rolled back with it.
        if conn.info.transaction_status == TransactionStatus.INTRANS:
            conn.execute(_SET_ALL, (names, [former[name] for name in names]))


_SET = "SELECT pg_catalog.set_config(%s, %s, true)"
_SHOW = "SELECT pg_catalog.current_setting(%s)"
_SHOW_ALL = (
    "SELECT n, pg_catalog.current_setting(n, true)"
    " FROM pg_catalog.unnest(%s::pg_catalog.text[]) AS n"
)
_SET_ALL = (
    "SELECT pg_catalog.set_config(n, v, true) FROM ROWS FROM ("
    "pg_catalog.unnest(%s::pg_catalog.text[]), pg_catalog.unnest(%s::pg_catalog.text[])) AS s (n, v)"
)
_CONFIGURATION = (
    "SELECT pg_catalog.format('%%I.%%I', n.nspname, c.cfgname) FROM pg_catalog.pg_ts_config AS c"
    " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.cfgnamespace"
    " WHERE c.oid = %s::pg_catalog.regconfig"
)
