"""The settings of a process with a database: the process's own take precedence over those stored in
the database.

The database checks a value when it is stored. A stored value from another version, or one that
contradicts this process's own settings, is ignored with a warning: otherwise no command could
connect to correct it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.catalog import setting_definitions
from millstream.catalog.setting_definitions import printed
from millstream.errors import BadSetting
from millstream.observe import log
from millstream.postgres.connection import Connection
from millstream.service.app import App
from millstream.service.verb import verb
from millstream.settings import NOT_FROM_DATABASE, ORDERED, PREFIX, Origin, Settings

# Spark properties whose values are not printed; the names are those that Spark itself redacts.
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)


@dataclass(frozen=True)
class Resolved:
    """Settings merged with those of the database, and the stored ones that are ignored, each with
    the reason.
    """

    settings: Settings
    ignored: Mapping[str, str]


@dataclass(frozen=True)
class SettingInfo:
    """One line of `millstream settings`."""

    name: str
    value: str
    default: str
    origin: Origin
    meaning: str
    note: str | None = None
    """Said where the database stores a value that is not used."""


def read(conn: Connection, given: Settings) -> Settings:
    """Return the given settings, with stored ones for those that the process does not set itself."""
    resolved = resolve(given, setting_definitions.stored(conn))
    for name, reason in resolved.ignored.items():
        log.warning("a setting of the database is ignored", name=name, reason=reason)
    return resolved.settings


def resolve(given: Settings, stored: Mapping[str, str]) -> Resolved:
    """Merge the given settings with the stored ones, which have lower precedence; leave out invalid
    stored values.
    """
    ignored = {name: reason for name in stored if (reason := _refusal(name))}
    usable = {name: value for name, value in stored.items() if name not in ignored}
    while True:
        try:
            return Resolved(given.with_stored(usable), ignored)
        except BadSetting as error:
            culprits = _culprits(error) & set(usable)
            if not culprits:
                raise
            ignored |= dict.fromkeys(culprits, error.message)
            usable = {name: value for name, value in usable.items() if name not in culprits}


def _refusal(name: str) -> str | None:
    if name not in Settings.model_fields:
        return "This version of Millstream has no such setting."
    return NOT_FROM_DATABASE.get(name)


def _culprits(error: BadSetting) -> set[str]:
    """Return the settings that may be the cause of an error: the one that it names, or all that are
    compared with another.
    """
    named = error.facts.get("name")
    return {str(named)} if named else {name for pair in ORDERED for name in pair}


@verb
def show(app: App) -> list[SettingInfo]:
    """Return all settings of this process, and the origin of each value."""
    stored = setting_definitions.stored(app.conn)
    resolved = resolve(app.given, stored)
    values = printed(resolved.settings)
    return [
        SettingInfo(
            one.name, _hide_secrets(values[one.name]), one.default_value, resolved.settings.origin(one.name),
            one.meaning, _note(one.name, resolved, stored),
        )
        for one in setting_definitions.definitions()
    ]  # fmt: skip


def _note(name: str, resolved: Resolved, stored: Mapping[str, str]) -> str | None:
    origin = resolved.settings.origin(name)
    if name in resolved.ignored:
        return f"The database has {stored[name]}, which is ignored: {resolved.ignored[name]}"
    if name in stored and origin != "database":
        return f"The database has {stored[name]}."
    return None


def _hide_secrets(value: str) -> str:
    if not value.startswith("{"):
        return value
    return json.dumps(
        {name: "***" if _SECRET.search(name) else one for name, one in json.loads(value).items()}
    )


@verb
def store(app: App, name: str, value: str) -> None:
    """Store a setting in the database, for every process that does not set it itself."""
    if name not in Settings.model_fields:
        Settings.model_construct().with_stored({name: value})  # Raises: there is no such setting.
    if reason := NOT_FROM_DATABASE.get(name):
        raise BadSetting(
            f"setting {name} cannot come from the database",
            detail=reason,
            hint=f"Set {PREFIX}{name.upper()} in the environment of the service, or {name} in its settings file.",
            name=name,
        )
    setting_definitions.store(app.conn, name, value)
    app.use(read(app.conn, app.given))


@verb
def reset(app: App, name: str) -> None:
    """Remove a setting from the database."""
    if name not in Settings.model_fields and name not in setting_definitions.stored(app.conn):
        Settings.model_construct().with_stored({name: ""})  # Raises: there is no such setting.
    setting_definitions.reset(app.conn, name)
    app.use(read(app.conn, app.given))
