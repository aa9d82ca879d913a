"""Settings of the database: below those of the process, above the defaults, and never a reason not
to connect.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

import millstream
from millstream import Settings
from millstream.catalog.installation import install
from millstream.errors import BadSetting
from millstream.postgres.connection import Connection
from millstream.service.live_settings import SettingInfo, read, resolve


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment and a file that each give one setting."""
    monkeypatch.chdir(tmp_path)
    Path("millstream.toml").write_text('shutdown_timeout = "20s"\n')
    monkeypatch.setenv("MILLSTREAM_MAX_CONCURRENT_REFRESHES", "2")


def test_the_database_gives_way_to_code_environment_and_file_and_beats_the_default() -> None:
    stored = {
        "shutdown_timeout": "1s",
        "max_concurrent_refreshes": "9",
        "max_lookup_rows": "9",
        "cdc_mode": "wal",
    }
    resolved = resolve(Settings(max_lookup_rows=3), stored)
    found = resolved.settings
    assert found.max_lookup_rows == 3
    assert found.max_concurrent_refreshes == 2
    assert found.shutdown_timeout == timedelta(seconds=20)
    assert found.cdc_mode == "wal"
    names = [
        "max_lookup_rows",
        "max_concurrent_refreshes",
        "shutdown_timeout",
        "cdc_mode",
        "enabled",
    ]
    assert [found.origin(name) for name in names] == [
        "code",
        "environment",
        "file",
        "database",
        "default",
    ]
    assert resolved.ignored == {}


def test_a_stored_value_that_cannot_hold_is_ignored_with_the_reason_and_the_others_hold() -> None:
    stored = {
        "former": "1", "cdc_mode": "sometimes", "trusted_roles": '["evil"]', "spark_conf": "{}",
        "slot_lag_critical": "1MB", "enabled": "false",
    }  # fmt: skip
    resolved = resolve(Settings(slot_lag_warning=2 << 20), stored)
    assert resolved.settings.enabled is False
    assert resolved.settings.trusted_roles == ()
    assert resolved.settings.cdc_mode == "auto"
    assert set(resolved.ignored) == set(stored) - {"enabled"}
    assert (
        resolved.ignored["slot_lag_critical"]
        == "slot_lag_warning must be less than slot_lag_critical"
    )


def test_settings_are_listed_set_and_reset_and_a_connection_works_with_them(
    conn: Connection, database: str
) -> None:
    with millstream.connect(database) as ms:
        ms.set_setting("min_schedule", "5m")
        ms.set_setting("shutdown_timeout", "7s")
        assert ms.app.settings.min_schedule == timedelta(minutes=5)
        listed = {one.name: one for one in ms.settings()}
        assert set(listed) == set(Settings.model_fields)
        assert listed["min_schedule"] == SettingInfo(
            "min_schedule",
            "5m",
            "200ms",
            "database",
            Settings.model_fields["min_schedule"].description or "",
        )
        assert (listed["shutdown_timeout"].value, listed["shutdown_timeout"].origin) == (
            "20s",
            "file",
        )
        assert listed["shutdown_timeout"].note == "The database has 7s."
    with millstream.connect(database) as again:
        # What a setting of the database changes: a schedule that was allowed is refused.
        with pytest.raises(BadSetting, match="1m"):
            again.create_stream_table("t", "SELECT 1 AS a", schedule="1m")
        for name in ("nosuch", "trusted_roles"):
            with pytest.raises(BadSetting, match=name) as caught:
                again.set_setting(name, "1")
            assert caught.value.hint
        with pytest.raises(BadSetting, match="unknown setting nosuch"):
            again.reset_setting("nosuch")
        again.reset_setting("min_schedule")
        again.reset_setting("min_schedule")
        assert again.app.settings.min_schedule == timedelta(milliseconds=200)
        # Written by another version, which knows another setting; no command is stopped, and it can
        # be removed.
        conn.execute("ALTER TABLE millstream.settings DISABLE TRIGGER check_setting")
        conn.execute(
            "INSERT INTO millstream.settings VALUES ('former', '1'), ('cdc_mode', 'sometimes')"
        )
        conn.execute("ALTER TABLE millstream.settings ENABLE TRIGGER check_setting")
        assert read(conn, Settings()).cdc_mode == "auto"
        note = next(one.note for one in again.settings() if one.name == "cdc_mode") or ""
        assert note.startswith(
            "The database has sometimes, which is ignored: bad value for cdc_mode"
        )
        again.reset_setting("former")
        again.reset_setting("cdc_mode")


def test_secrets_among_sparks_properties_are_not_printed(conn: Connection, database: str) -> None:
    install.install(conn)
    given = Settings(spark_conf={"spark.hadoop.fs.s3a.secret.key": "hush", "spark.ui.port": "4050"})
    with millstream.connect(database, settings=given) as ms:
        printed = next(one.value for one in ms.settings() if one.name == "spark_conf")
    found = json.loads(printed)
    assert (found["spark.hadoop.fs.s3a.secret.key"], found["spark.ui.port"]) == ("***", "4050")
