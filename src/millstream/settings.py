"""The settings: their names, types, defaults and meaning, and the places they are read from.

    passed in code  >  MILLSTREAM_<NAME> in the environment  >  the TOML file  >  the database  >  the default

Whoever runs a process decides for that process, the table `millstream.settings` of the database for all others;
`service/live_settings.py` reads it. The file is `millstream.toml` in the working directory, or the one that
MILLSTREAM_CONFIG names. An unknown name or a bad value is refused in every place: a misspelt setting must not be
ignored silently.
`docs/reference/settings.md` is generated from this class.

A file in the working directory may be another user's: the directory was unpacked, or is shared. If
another user could have written the file, it may set only the `HARMLESS` settings: not where rows
are sent, which code runs, or which roles are trusted. A file that MILLSTREAM_CONFIG names is always
trusted. The database may set what concerns the database, but not the `NOT_FROM_DATABASE` settings:
its owner need not be trusted on the machine that Millstream runs on.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from millstream import duration, ownership
from millstream.errors import BadSetting

PREFIX = "MILLSTREAM_"
FILE = Path("millstream.toml")

# Settings that a file in the working directory may set even if another user could have written it.
# Add a setting only if it cannot run code, send rows anywhere or lower a protection.
HARMLESS = frozenset(
    {
        "min_schedule", "differential_max_change_ratio", "max_lookup_rows", "max_lock_share", "max_recursion_steps",
        "cdc_mode", "wal_transition_timeout", "slot_lag_warning", "slot_lag_critical", "heartbeat_interval",
        "heartbeat_timeout", "max_consecutive_errors", "enabled", "scheduler_interval", "max_concurrent_refreshes",
        "shutdown_timeout",
    }
)  # fmt: skip

# Settings that the database cannot set, with the reason.
_MACHINE = "It decides which code runs on the machine of the service, and where rows are sent."
NOT_FROM_DATABASE: dict[str, str] = {
    "spark_master": _MACHINE,
    "spark_conf": _MACHINE,
    "spark_driver_memory": "It depends on the memory of the machine that the service runs on.",
    "trusted_roles": "It decides whose code runs with the rights of the service.",
}

Origin = Literal["code", "environment", "file", "database", "default"]

# Environment variables with our prefix that are not settings, and their meaning.
OTHER_VARIABLES: dict[str, str] = {
    "MILLSTREAM_DSN": "the database of every command, unless --dsn is given",
    "MILLSTREAM_CONFIG": "the settings file, instead of millstream.toml in the working directory",
    "MILLSTREAM_FAILPOINT": "for tests: the process kills itself at this failpoint",
}
# Prefix of the test suite's own variables, such as the bin directory of another server.
TEST_VARIABLES = "MILLSTREAM_TEST_"


def _parse_duration(value: object) -> object:
    """Read a duration with its unit. A bare number is refused: its unit would be a guess."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        return duration.parse(value)
    raise ValueError(f"not a duration; expected {duration.EXPECTED}")


# At least a millisecond, which is the smallest unit that is printed.
Duration = Annotated[
    timedelta,
    BeforeValidator(_parse_duration),
    PlainSerializer(duration.printed),
    Field(ge=duration.UNITS["ms"]),
]

_UNITS = {"B": 0, "kB": 10, "MB": 20, "GB": 30, "TB": 40}


def _parse_size(value: object) -> object:
    """Read a size as PostgreSQL writes it: `100MB`. A bare number counts bytes."""
    if not isinstance(value, str) or value.isdigit():
        return value
    match = re.fullmatch(r"(\d+)\s*(B|kB|MB|GB|TB)", value.strip())
    if match is None:
        raise ValueError(
            "not a size; expected a number and a unit (B, kB, MB, GB or TB), such as 100MB"
        )
    return int(match[1]) << _UNITS[match[2]]


def print_size(size: int) -> str:
    """Return a size with the largest unit that divides it.

    >>> print_size(100 << 20), print_size(1 << 30), print_size(1500)
    ('100MB', '1GB', '1500B')
    """
    unit = next(unit for unit, bits in reversed(_UNITS.items()) if size % (1 << bits) == 0)
    return f"{size >> _UNITS[unit]}{unit}"


Size = Annotated[int, BeforeValidator(_parse_size), PlainSerializer(print_size), Field(gt=0)]


_MASTER = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?|yarn|[a-z][a-z0-9+.-]*://\S+")


def _check_master(value: str) -> str:
    """Refuse a master URL that Spark does not know, which it would report as a Java exception while
    starting.
    """
    if not _MASTER.fullmatch(value):
        raise ValueError(
            "not a Spark master; expected local[*], local[4], spark://host:port, yarn or k8s://address"
        )
    return value


SparkMaster = Annotated[str, AfterValidator(_check_master)]

CdcMode = Literal["trigger", "auto", "wal"]
CDC_MODES: tuple[str, ...] = get_args(CdcMode)


class Settings(BaseSettings):
    """All settings, frozen. The constructor raises `BadSetting` for an invalid one."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    enabled: bool = Field(
        True,
        description="Refresh stream tables by schedule. If off, the service only answers requests.",
    )
    scheduler_interval: Duration = Field(
        timedelta(milliseconds=200),
        ge=timedelta(milliseconds=10),
        description="How often the service looks for stream tables that are due.",
    )
    max_concurrent_refreshes: int = Field(
        4,
        ge=1,
        le=64,
        description="Refresh at most this many graphs of stream tables side by side. Each has its own connections.",
    )
    shutdown_timeout: Duration = Field(
        timedelta(seconds=30),
        description="Roll back a refresh that takes longer after the service was told to stop.",
    )
    verify_budget: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Share of time that the service spends on comparing stream tables with their queries. 0: none.",
    )
    history_retention: Duration = Field(
        timedelta(days=30),
        description="Delete entries of the refresh history, and answered requests, that are older.",
    )
    block_source_ddl: bool = Field(
        False,
        description="Refuse ALTER and DROP of columns that stream tables read, instead of following them. Must be set "
        "in the database, and needs event triggers, which only superusers may create.",
    )
    min_schedule: Duration = Field(
        timedelta(milliseconds=200), description="Shortest schedule that a stream table may have."
    )
    differential_max_change_ratio: float = Field(
        0.15,
        gt=0,
        le=1,
        description="In mode AUTO, recompute a stream table in full if a larger share of a source's rows has changed.",
    )
    max_lookup_rows: int = Field(
        1_000_000,
        ge=0,
        description="If a lookup by key would return more rows than this, scan the table instead.",
    )
    max_lock_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of the server's free locks that one transaction of a refresh may hold. Stream tables that "
        "need more are refreshed in several transactions, except those that read each other.",
    )
    max_recursion_steps: int = Field(
        1_000,
        ge=1,
        description="Fail a refresh if a recursive query has not ended after this many steps.",
    )
    cdc_mode: CdcMode = Field(
        "auto",
        description="How changes are captured. `trigger`: by triggers. `auto`: by triggers first, then from WAL for "
        "sources that allow it. `wal`: from WAL; sources that do not allow it are refused.",
    )
    wal_transition_timeout: Duration = Field(
        timedelta(seconds=300),
        description="Abandon a transition of a source to WAL capture that takes longer.",
    )
    auto_replica_identity: bool = Field(
        False,
        description="Allow Millstream to set REPLICA IDENTITY FULL on source tables, which WAL capture needs.",
    )
    slot_lag_warning: Size = Field(
        100 << 20, description="Send an alert if the replication slot lags further behind."
    )
    slot_lag_critical: Size = Field(
        1024 << 20,
        description="Return the sources to trigger capture if the replication slot lags further behind.",
    )
    heartbeat_interval: Duration = Field(
        timedelta(seconds=15),
        ge=timedelta(milliseconds=100),
        description="How often to write a heartbeat message to WAL, which the replication stream must return.",
    )
    heartbeat_timeout: Duration = Field(
        timedelta(minutes=10),
        description="Reconnect the replication stream if nothing was received for this long.",
    )
    max_consecutive_errors: int = Field(
        3, ge=1, description="Suspend a stream table after this many failed refreshes in a row."
    )
    allow_direct_writes: bool = Field(
        False,
        description="Allow users to write to stream tables. Their changes stay until the next full refresh.",
    )
    trusted_roles: tuple[str, ...] = Field(
        (),
        description="Roles whose functions, domains and triggers may run with the privileges of the role that "
        "Millstream connects as. That role itself and superusers are always trusted. In the environment: a JSON list.",
    )
    spark_master: SparkMaster = Field("local[*]", description="Spark master URL: where Spark runs.")
    spark_driver_memory: Size | None = Field(
        None,
        ge=256 << 20,
        description="Memory of the Spark driver, where local Spark does all its work. Default: a quarter of the "
        "machine's memory, at least 1GB and at most 4GB.",
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict,
        description="Further Spark properties. They override Millstream's own; Java options are appended. In the "
        "environment: a JSON object.",
    )

    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        """Raise ValueError if a lower limit is not below its upper limit."""
        for lower, higher in ORDERED:
            if not getattr(self, lower) < getattr(self, higher):
                raise ValueError(f"{lower} must be less than {higher}")
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise BadSetting(
            f"settings cannot be changed: {name}",
            hint=f"Create new settings with millstream.Settings({name}=...) and connect with them.",
            name=name,
            value=value,
        )

    # The values have any type; pydantic checks each.
    def __init__(self, **values: Any) -> None:
        _refuse_unknown_variables()
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _bad_value(error) from error
        except SettingsError as error:
            raise BadSetting(
                str(error),
                hint="Write the value as JSON: an object for spark_conf, a list for trusted_roles.",
            ) from error
        except tomllib.TOMLDecodeError as error:
            raise BadSetting.of("settings file", str(_file()), f"TOML ({error})") from error
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting.of(
                "settings file", str(_file()), f"a file that can be read ({error})"
            ) from error
        self._origins.update((name, _origin(name, values)) for name in self.model_fields_set)

    def origin(self, name: str) -> Origin:
        """Return the place that the value of a setting comes from."""
        return self._origins.get(name, "default")

    def with_stored(self, stored: Mapping[str, str]) -> Self:
        """Return these settings, with the values of the database where no stronger place gives one."""
        weaker = {name: value for name, value in stored.items() if name not in self._origins}
        made = type(self).__new__(type(self))
        # Not the constructor of this class, which reads the environment and the file.
        try:
            BaseModel.__init__(
                made, **{name: getattr(self, name) for name in self._origins}, **weaker
            )
        except ValidationError as error:
            raise _bad_value(error) from error
        made._origins.update(self._origins)
        made._origins.update(dict.fromkeys(weaker, "database"))
        return made

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the places that settings are read from, the strongest first."""
        return (
            init_settings,
            env_settings,
            InitSettingsSource(settings_cls, init_kwargs=_from_file()),
        )


# Pairs of settings of which the first must be less than the second.
ORDERED = (("slot_lag_warning", "slot_lag_critical"), ("heartbeat_interval", "heartbeat_timeout"))


def _file() -> Path:
    """Return the path of the settings file.

    Raise BadSetting if MILLSTREAM_CONFIG names a file that does not exist.
    """
    named = os.environ.get("MILLSTREAM_CONFIG")
    if named is not None and not Path(named).is_file():
        raise BadSetting.of("MILLSTREAM_CONFIG", named, "the path of a settings file")
    return Path(named) if named else FILE


# TOML has values of many types; pydantic checks each.
def _from_file() -> dict[str, Any]:
    """Return the values of the settings file; none if there is no file."""
    path = _file()
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        # A file that MILLSTREAM_CONFIG names is trusted.
        reason = ownership.distrust_opened(file, path) if path is FILE else None
        values = tomllib.load(file)
    refused = sorted(
        name for name in values if name in Settings.model_fields and name not in HARMLESS
    )
    if reason and refused:
        raise BadSetting.by_others(path, reason, refused)
    return values


def _origin(name: str, values: Mapping[str, object]) -> Origin:
    """Return the place that a value of the constructor was read from."""
    if name in values:
        return "code"
    variables = {variable.upper() for variable in os.environ}
    return "environment" if PREFIX + name.upper() in variables else "file"


def _refuse_unknown_variables() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | set(OTHER_VARIABLES)
    for variable in os.environ:
        if (
            variable.startswith(PREFIX)
            and variable not in known
            and not variable.startswith(TEST_VARIABLES)
        ):
            raise BadSetting(
                f"unknown setting {variable} in the environment",
                hint=f"The settings are: {_names()}.",
                name=variable,
            )


def _bad_value(error: ValidationError) -> BadSetting:
    """Translate the first error that pydantic reports."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return BadSetting(
            f"unknown setting {name}", hint=f"The settings are: {_names()}.", name=name
        )
    if not name:
        message = first["msg"].removeprefix("Value error, ")
        return BadSetting(
            message, hint="See docs/reference/settings.md for every setting and its meaning."
        )
    return BadSetting(
        f"bad value for {name}: {first['input']!r}",
        detail=f"{first['msg'].removeprefix('Value error, ')}.",
        hint="See docs/reference/settings.md for every setting and its meaning.",
        name=name,
        value=first["input"],
    )


def _names() -> str:
    return ", ".join(Settings.model_fields)
