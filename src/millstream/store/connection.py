"""Connections to PostgreSQL, all with the same pinned session settings.

A role or a database may carry its own DateStyle, TimeZone or row_security; a value must look the
same whoever reads it, so what decides how values print is set in the startup packet.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import psycopg
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
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    # What decides how the server reads and prints SQL text of ours.
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "array_nulls": "on",
    "transform_null_equals": "off",
}


def pinned(dsn: str, *, application_name: str = "millstream", **settings: str) -> str:
    """The dsn with our settings in it, and further ones; works for any libpq client."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise BadSetting.of("dsn", dsn, "a connection string such as postgresql://user@host/database") from error
    pins = {**PINNED, **settings}.items()
    options = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in pins)
    given = parts.pop("options", None)
    parts.setdefault("application_name", application_name)
    parts.setdefault("connect_timeout", "10")
    parts["client_encoding"] = "UTF8"
    return make_conninfo("", **parts, options=f"{given} {options}" if given else options)


def connect(dsn: str, *, application_name: str = "millstream") -> Connection:
    """Open a connection in autocommit mode, to a server of a version we know."""
    try:
        connection = psycopg.connect(pinned(dsn, application_name=application_name), autocommit=True)
    except psycopg.OperationalError as error:
        raise ServerDown.unreachable(dsn, str(error)) from error
    version = connection.info.server_version
    if not OLDEST <= version // 10000 <= NEWEST:
        connection.close()
        raise WrongVersion.of(version, OLDEST, NEWEST)
    if version >= 170000:  # the setting came with 17; a startup option of an unknown name would be an error
        connection.execute("SET transaction_timeout = 0")
    return connection
