"""The database refuses settings that the class Settings would refuse, and accepts what it accepts."""

from __future__ import annotations

import psycopg
import pytest

from millstream.catalog import setting_definitions
from millstream.catalog.installation import install
from millstream.errors import BadSetting
from millstream.postgres.connection import Connection
from millstream.settings import NOT_FROM_DATABASE, Settings

# Of each kind, values in every form; those in which Python is more lenient are left out: ` 5 `,
# `1_000`, `1e3`, and `1.0` as a whole number.
VALUES = (
    "true", "off", "YES", "0", "1", "2", "5", "64", "65", "-1", "0.5", "1.5", "10ms", "9ms", "0s", "1 S", "5m", "2D",
    "1 month", "99999999999s", "100MB", "100 kB", "1GB", "5TB", "0B", "1mb", "trigger", "auto", "wal", "TRIGGER",
    "perhaps", "", "NaN", "1s; DROP TABLE t",
)  # fmt: skip
NAMES = [name for name in Settings.model_fields if name not in NOT_FROM_DATABASE]


def _accepts(name: str, value: str) -> bool:
    try:
        Settings.model_construct().with_stored({name: value})
    except BadSetting:
        return False
    return True


def _refusal(conn: Connection, name: str, value: str) -> BadSetting | None:
    try:
        with conn.transaction(force_rollback=True):
            setting_definitions.store(conn, name, value)
    except BadSetting as error:
        return error
    return None


def test_the_database_takes_exactly_the_values_that_the_class_takes(conn: Connection) -> None:
    install.install(conn)
    differ = list[str]()
    for name in NAMES:
        for value in VALUES:
            refusal = _refusal(conn, name, value)
            if (refusal is None) != _accepts(name, value) or (refusal and not refusal.hint):
                differ.append(f"{name} = {value!r}: the database says {refusal}")
    assert differ == []


def test_every_setting_takes_its_own_default_or_says_why_it_cannot_come_from_here(
    conn: Connection,
) -> None:
    install.install(conn)
    defaults = setting_definitions.printed(Settings.model_construct())
    for name in NAMES:
        setting_definitions.store(conn, name, defaults[name])
    assert setting_definitions.stored(conn) == {name: defaults[name] for name in NAMES}
    for name, reason in NOT_FROM_DATABASE.items():
        with pytest.raises(BadSetting, match="cannot come from the database") as caught:
            setting_definitions.store(conn, name, defaults[name])
        assert caught.value.detail == reason
        assert f"MILLSTREAM_{name.upper()}" in caught.value.hint


def test_plain_sql_is_checked_too_and_every_change_wakes_the_service(conn: Connection) -> None:
    install.install(conn)
    conn.execute("LISTEN millstream_wake")
    insert = "INSERT INTO millstream.settings VALUES (%s, %s)"
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match="unknown setting cdc_mood"
    ) as caught:
        conn.execute(insert, ("cdc_mood", "auto"))
    assert "cdc_mode" in (caught.value.diag.message_hint or "")
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match="bad value for shutdown_timeout: 'soon'"
    ):
        conn.execute(insert, ("shutdown_timeout", "soon"))
    # One of a pair alone contradicts the other's default, or its stored value when that goes.
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match="slot_lag_warning must be less than"
    ):
        conn.execute(insert, ("slot_lag_warning", "2GB"))
    assert list(conn.notifies(timeout=0)) == []
    conn.execute(
        "INSERT INTO millstream.settings VALUES ('slot_lag_warning', '2GB'), ('slot_lag_critical', '3GB')"
    )
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match="slot_lag_warning must be less than"
    ):
        conn.execute("DELETE FROM millstream.settings WHERE name = 'slot_lag_critical'")
    conn.execute("UPDATE millstream.settings SET value = '4GB' WHERE name = 'slot_lag_critical'")
    conn.execute("TRUNCATE millstream.settings")
    words = [one.payload for one in conn.notifies(timeout=60, stop_after=3)]
    assert words == ["settings"] * 3


def test_an_install_writes_the_definitions_again_only_if_they_differ(conn: Connection) -> None:
    install.install(conn)
    versions = "SELECT array_agg(DISTINCT xmin::text) FROM millstream.setting_definitions"
    before = conn.execute(versions).fetchone()
    install.install(conn)
    assert conn.execute(versions).fetchone() == before
    # As another version would have left them: one setting less, one more, another bound.
    conn.execute("DELETE FROM millstream.setting_definitions WHERE name = 'cdc_mode'")
    conn.execute(
        "UPDATE millstream.setting_definitions SET minimum = 7 WHERE name = 'max_consecutive_errors'"
    )
    conn.execute("UPDATE millstream.setting_definitions SET name = 'former' WHERE name = 'enabled'")
    install.install(conn)
    names = [name for (name,) in conn.execute("SELECT name FROM millstream.setting_definitions")]
    assert sorted(names) == sorted(Settings.model_fields)
    setting_definitions.store(conn, "max_consecutive_errors", "1")
