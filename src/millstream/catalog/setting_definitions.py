"""Settings in the database: the stored values, and the definitions by which the database checks
them.

The definitions are derived from the class `Settings` and written by every install. So a new setting
needs no migration: the next `millstream init` or `connect` writes its definition. A setting whose
values SQL cannot check raises an error here, and so in every test that installs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cache
from typing import Literal, get_args, get_origin

from psycopg import errors
from psycopg.types.json import Jsonb
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from millstream.errors import BadSetting
from millstream.postgres.connection import Connection
from millstream.postgres.sql_files import load
from millstream.settings import NOT_FROM_DATABASE, ORDERED, Settings

Kind = Literal["bool", "integer", "number", "duration", "size", "choice", "other"]

_SQL = load("millstream.catalog", "setting_definitions.sql")


@dataclass(frozen=True)
class Definition:
    """One setting: its kind and bounds. Those of a duration are milliseconds, those of a size
    bytes.
    """

    name: str
    kind: Kind
    minimum: float | None
    minimum_is_allowed: bool | None
    maximum: float | None
    choices: list[str] | None
    less_than: str | None
    default_value: str
    meaning: str
    refusal: str | None


def record(conn: Connection) -> None:
    """Write the definitions of this version, if they differ from the recorded ones."""
    rows = [asdict(definition) for definition in definitions()]
    if conn.execute(_SQL["recorded"], {"rows": Jsonb(rows)}).fetchall():
        return
    conn.execute("LOCK TABLE millstream.setting_definitions IN SHARE ROW EXCLUSIVE MODE")
    conn.execute("DELETE FROM millstream.setting_definitions")
    conn.execute(_SQL["record"], {"rows": Jsonb(rows)})


def stored(conn: Connection) -> dict[str, str]:
    """Return the settings that the database stores."""
    return dict(conn.execute(_SQL["stored"]).fetchall())


def store(conn: Connection, name: str, value: str) -> None:
    """Store a setting. A trigger checks it and wakes the service."""
    with _as_bad_setting(name, value):
        conn.execute(_SQL["store"], (name, value))


def reset(conn: Connection, name: str) -> None:
    """Remove a setting. A trigger checks that the others are valid without it, and wakes the
    service.
    """
    with _as_bad_setting(name, None):
        conn.execute(_SQL["reset"], (name,))


@contextmanager
def _as_bad_setting(name: str, value: str | None) -> Iterator[None]:
    """Convert the trigger's error to BadSetting."""
    try:
        yield
    except errors.InvalidParameterValue as error:
        diag = error.diag
        raise BadSetting(
            diag.message_primary or str(error),
            detail=diag.message_detail or "",
            hint=diag.message_hint or "",
            name=name,
            value=value,
        ) from error


@cache
def definitions() -> tuple[Definition, ...]:
    """Return the definition of every setting."""
    return tuple(_definition(name, field) for name, field in Settings.model_fields.items())


def printed(settings: Settings) -> dict[str, str]:
    """Return the value of every setting as text, in the form in which it can be set."""
    return {name: _text(value) for name, value in settings.model_dump().items()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _definition(name: str, field: FieldInfo) -> Definition:
    kind = _kind(field)
    refusal = NOT_FROM_DATABASE.get(name)
    if kind == "other" and refusal is None:
        raise TypeError(f"the database cannot check values of setting {name}")
    minimum, is_allowed, maximum = _bounds(field)
    defaults = printed(Settings.model_construct())
    return Definition(
        name, kind, minimum, is_allowed, maximum,
        list(get_args(field.annotation)) if kind == "choice" else None, dict(ORDERED).get(name), defaults[name],
        field.description or "", refusal,
    )  # fmt: skip


def _kind(field: FieldInfo) -> Kind:
    if get_origin(field.annotation) is Literal:
        return "choice"
    if field.annotation is int:
        return (
            "size" if any(isinstance(one, BeforeValidator) for one in field.metadata) else "integer"
        )
    kinds: dict[object, Kind] = {bool: "bool", float: "number", timedelta: "duration"}
    return kinds.get(field.annotation, "other")


def _bounds(field: FieldInfo) -> tuple[float | None, bool | None, float | None]:
    """Return the lower bound, whether it is itself allowed, and the greatest value."""
    lower = [(_amount(one.ge), True) for one in field.metadata if hasattr(one, "ge")]
    lower += [(_amount(one.gt), False) for one in field.metadata if hasattr(one, "gt")]
    upper = [_amount(one.le) for one in field.metadata if hasattr(one, "le")]
    minimum, is_allowed = max(lower, default=(None, None))
    return minimum, is_allowed, min(upper, default=None)


def _amount(bound: object) -> float:
    if isinstance(bound, timedelta):
        return bound / timedelta(milliseconds=1)
    if isinstance(bound, int | float):
        return bound
    raise TypeError(f"bound {bound!r} is not a number")
