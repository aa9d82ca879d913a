"""What can be set, with its default and its meaning: one schema for every place it is set in.

    given in code  >  MILLSTREAM_<NAME> in the environment  >  the TOML file  >  the default

The file is `millstream.toml` in the working directory, or the one MILLSTREAM_CONFIG names. An unknown
name or a bad value is refused, wherever it stands: a misspelt setting that does nothing is worse
than none. `docs/reference/settings.md` is printed from this class.

A file in the working directory may be somebody else's: a directory that was unpacked, or is shared. One that others
could have written sets only what can do no harm (`HARMLESS`): not where rows are sent, which code runs, or whom we
trust. A file that MILLSTREAM_CONFIG names is the user's own choice.
"""

from __future__ import annotations

import os
import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationError, model_validator
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

# What a file in the working directory that others could have written may set. A new setting is not among them until it
# is known to run no code, to send nothing anywhere and to lower no protection.
HARMLESS = frozenset(
    {
        "min_schedule", "differential_max_change_ratio", "max_lookup_rows", "max_lock_share", "max_recursion_steps",
        "cdc_mode", "wal_transition_timeout", "slot_lag_warning", "slot_lag_critical", "heartbeat_interval",
        "heartbeat_timeout", "max_consecutive_errors",
    }
)  # fmt: skip

# Variables of our prefix that are not settings, and who reads them.
OTHER_VARIABLES: dict[str, str] = {
    "MILLSTREAM_DSN": "the database of every command, unless --dsn is given",
    "MILLSTREAM_CONFIG": "the settings file, instead of millstream.toml in the working directory",
    "MILLSTREAM_FAILPOINT": "for tests: the process kills itself at this step of a refresh",
}
# The suite has variables of its own, such as another server's bin directory.
TEST_VARIABLES = "MILLSTREAM_TEST_"


def _read(value: object) -> object:
    """A duration as people write it; a bare number would be of seconds, or of milliseconds: nobody could tell."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        return duration.parse(value)
    raise ValueError(f"not a duration; expected {duration.EXPECTED}")


# What is finer than a millisecond would be printed as 0.
Duration = Annotated[
    timedelta, BeforeValidator(_read), PlainSerializer(duration.printed), Field(ge=duration.UNITS["ms"])
]

_UNITS = {"B": 0, "kB": 10, "MB": 20, "GB": 30, "TB": 40}


def _bytes(value: object) -> object:
    """Sizes as PostgreSQL writes them: `100MB`."""
    if not isinstance(value, str) or value.isdigit():
        return value
    match = re.fullmatch(r"(\d+)\s*(B|kB|MB|GB|TB)", value.strip())
    if match is None:
        raise ValueError("a size is written as 100MB, with B, kB, MB, GB or TB")
    return int(match[1]) << _UNITS[match[2]]


def _printed(size: int) -> str:
    unit = next(unit for unit, bits in reversed(_UNITS.items()) if size % (1 << bits) == 0)
    return f"{size >> _UNITS[unit]}{unit}"


Size = Annotated[int, BeforeValidator(_bytes), PlainSerializer(_printed), Field(gt=0)]


_MASTER = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?|yarn|[a-z][a-z0-9+.-]*://\S+")


def _master(value: str) -> str:
    """A place where Spark may run: one that it does not know would end its start in an error of Java's."""
    if not _MASTER.fullmatch(value):
        raise ValueError("Spark runs in local[*], local[4], spark://host:port, yarn or k8s://address")
    return value


SparkMaster = Annotated[str, AfterValidator(_master)]

CdcMode = Literal["trigger", "auto", "wal"]
CDC_MODES: tuple[str, ...] = get_args(CdcMode)


class Settings(BaseSettings):
    """All settings; frozen, and right from birth: a bad one raises `BadSetting`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    min_schedule: Duration = Field(timedelta(milliseconds=200), description="The shortest schedule accepted.")
    differential_max_change_ratio: float = Field(
        0.15,
        gt=0,
        le=1,
        description="In mode AUTO: when a larger share of a source has changed, refresh in full.",
    )
    max_lookup_rows: int = Field(
        1_000_000,
        ge=0,
        description="When a lookup by key would return more rows than this, scan the table instead.",
    )
    max_lock_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="A transaction of a refresh may hold this share of the server's locks that others have left. "
        "Stream tables that do not fit into one are refreshed in several, except where they read each other.",
    )
    max_recursion_steps: int = Field(
        1_000,
        ge=1,
        description="A recursive query that has not ended after this many steps in one refresh is an error.",
    )
    cdc_mode: CdcMode = Field(
        "auto",
        description="How changes are captured: by `trigger`; `auto`: by triggers first, from the log where that is "
        "possible; `wal`: from the log, and what cannot be is refused.",
    )
    wal_transition_timeout: Duration = Field(
        timedelta(seconds=300), description="A hand-over to the log that takes longer is given up."
    )
    auto_replica_identity: bool = Field(
        False, description="May Millstream set REPLICA IDENTITY FULL on sources, so that the log tells old rows whole?"
    )
    slot_lag_warning: Size = Field(100 << 20, description="An alert is sent when the slot lags further behind.")
    slot_lag_critical: Size = Field(
        1024 << 20, description="When the slot lags further behind, its sources return to triggers."
    )
    heartbeat_interval: Duration = Field(
        timedelta(seconds=15),
        ge=timedelta(milliseconds=100),
        description="How often a message is sent through the log to see it come back.",
    )
    heartbeat_timeout: Duration = Field(
        timedelta(minutes=10), description="Without any sign of life for so long the log is taken up anew."
    )
    max_consecutive_errors: int = Field(
        3, ge=1, description="After this many failures in a row the scheduler suspends a stream table."
    )
    allow_direct_writes: bool = Field(
        False, description="May users write to stream tables? What they write stays until a full refresh."
    )
    trusted_roles: tuple[str, ...] = Field(
        (),
        description="Roles whose functions, domains and triggers may run with the rights of the role that Millstream "
        "connects as; without it only those of that role itself and of superusers do. In the environment: JSON.",
    )
    spark_master: SparkMaster = Field("local[*]", description="Where Spark runs, as Spark writes it.")
    spark_driver_memory: Size | None = Field(
        None,
        ge=256 << 20,
        description="The memory of Spark's driver, in which local Spark does all its work. Without it: a quarter of "
        "the machine's, between 1GB and 4GB.",
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict,
        description="Further Spark properties; they win over ours, Java's options are added. In the environment: JSON.",
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        """Each of these pairs makes sense in one order only."""
        for lower, higher in _ORDERED:
            if not getattr(self, lower) < getattr(self, higher):
                raise ValueError(f"{lower} must be less than {higher}")
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise BadSetting(
            f"settings cannot be changed: {name}",
            hint=f"Make others with: millstream.Settings({name}=...), and connect with them.",
            name=name,
            value=value,
        )

    # Settings come by name from anywhere; pydantic checks each.
    def __init__(self, **given: Any) -> None:
        _refuse_unknown_variables()
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise _bad_value(error) from error
        except SettingsError as error:
            raise BadSetting(str(error), hint="A setting that is a table is written as a JSON object.") from error
        except tomllib.TOMLDecodeError as error:
            raise BadSetting.of("settings file", str(_file()), f"TOML ({error})") from error
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting.of("settings file", str(_file()), f"a file that can be read ({error})") from error

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The places to look in, the strongest first."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=_from_file())


# The first must be less than the second.
_ORDERED = (("slot_lag_warning", "slot_lag_critical"), ("heartbeat_interval", "heartbeat_timeout"))


def _file() -> Path:
    """The settings file; one that is named must be there."""
    named = os.environ.get("MILLSTREAM_CONFIG")
    if named is not None and not Path(named).is_file():
        raise BadSetting.of("MILLSTREAM_CONFIG", named, "the path of a settings file")
    return Path(named) if named else FILE


# TOML has values of many types; pydantic checks each.
def _from_file() -> dict[str, Any]:
    """What the settings file says; nothing where there is none."""
    path = _file()
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        # One that the user has named is the user's choice.
        reason = ownership.distrust_opened(file, path) if path is FILE else None
        values = tomllib.load(file)
    refused = sorted(name for name in values if name in Settings.model_fields and name not in HARMLESS)
    if reason and refused:
        raise BadSetting.by_others(path, reason, refused)
    return values


def _refuse_unknown_variables() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | set(OTHER_VARIABLES)
    for variable in os.environ:
        if variable.startswith(PREFIX) and variable not in known and not variable.startswith(TEST_VARIABLES):
            raise BadSetting(
                f"unknown setting {variable} in the environment", hint=f"The settings are: {_names()}.", name=variable
            )


def _bad_value(error: ValidationError) -> BadSetting:
    """The first complaint, in our own words."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return BadSetting(f"unknown setting {name}", hint=f"The settings are: {_names()}.", name=name)
    if not name:
        message = first["msg"].removeprefix("Value error, ")
        return BadSetting(message, hint="docs/reference/settings.md lists every setting with its meaning.")
    return BadSetting(
        f"bad value for {name}: {first['input']!r}",
        detail=f"{first['msg'].removeprefix('Value error, ')}.",
        hint="docs/reference/settings.md lists every setting with its meaning.",
        name=name,
        value=first["input"],
    )


def _names() -> str:
    return ", ".join(Settings.model_fields)
