"""Settings: where they come from, which wins, and that a bad one is never taken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from millstream.errors import BadSetting
from millstream.settings import HARMLESS, Settings


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLSTREAM_SPARK_CONF", raising=False)


def test_without_any_place_the_defaults_hold() -> None:
    settings = Settings()
    assert settings.min_schedule == timedelta(milliseconds=200)
    assert settings.differential_max_change_ratio == 0.15
    assert settings.max_lookup_rows == 1_000_000
    assert settings.spark_conf == {}


def test_the_file_beats_the_default_the_environment_the_file_and_code_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("millstream.toml").write_text(
        'max_lookup_rows = 1\nmin_schedule = "1s"\nspark_master = "local[1]"\n'
    )
    monkeypatch.setenv("MILLSTREAM_MIN_SCHEDULE", "2s")
    monkeypatch.setenv("MILLSTREAM_SPARK_MASTER", "local[2]")
    settings = Settings(spark_master="local[3]")
    assert settings.max_lookup_rows == 1
    assert settings.min_schedule == timedelta(seconds=2)
    assert settings.spark_master == "local[3]"


def test_another_file_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.toml").write_text('[spark_conf]\n"spark.driver.memory" = "3g"\n')
    monkeypatch.setenv("MILLSTREAM_CONFIG", str(tmp_path / "other.toml"))
    assert Settings().spark_conf == {"spark.driver.memory": "3g"}


def test_a_named_file_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CONFIG", "nowhere.toml")
    with pytest.raises(BadSetting, match=r"MILLSTREAM_CONFIG: 'nowhere.toml'"):
        Settings()


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("MILLSTREAM_MAX_LOOKUP_ROWS", "many", "bad value for max_lookup_rows: 'many'"),
        ("MILLSTREAM_MAX_LOOKUP_ROWS", "-1", "bad value for max_lookup_rows"),
        ("MILLSTREAM_MAX_RECURSION_STEPS", "0", "bad value for max_recursion_steps"),
        ("MILLSTREAM_MIN_SCHEDULE", "soon", "bad value for min_schedule: 'soon'"),
        (
            "MILLSTREAM_DIFFERENTIAL_MAX_CHANGE_RATIO",
            "1.5",
            "bad value for differential_max_change_ratio",
        ),
        ("MILLSTREAM_SPARK_CONF", "spark.a=1", "spark_conf"),
        ("MILLSTREAM_MIN_SHEDULE", "1s", "unknown setting MILLSTREAM_MIN_SHEDULE"),
    ],
)
def test_a_bad_or_unknown_variable_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, complaint: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadSetting) as caught:
        Settings()
    assert complaint in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "variable", ["MILLSTREAM_DSN", "MILLSTREAM_FAILPOINT", "MILLSTREAM_TEST_BINDIR"]
)
def test_variables_that_others_read_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "x")
    Settings()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("min_shedule = 1", "unknown setting min_shedule"), ("min_schedule =", "settings file")],
)
def test_a_file_with_a_bad_name_or_bad_toml_is_refused(text: str, complaint: str) -> None:
    Path("millstream.toml").write_text(text)
    with pytest.raises(BadSetting, match=complaint):
        Settings()


def test_settings_do_not_change_after_birth() -> None:
    with pytest.raises(BadSetting, match="cannot be changed: max_lookup_rows"):
        Settings().max_lookup_rows = 3


@pytest.mark.parametrize(
    "given",
    [
        {"heartbeat_interval": "0s"},
        {"heartbeat_interval": "1ms"},
        {"heartbeat_interval": timedelta(0)},
        {"heartbeat_interval": timedelta(seconds=-1)},
        {"heartbeat_interval": 15},
        {"heartbeat_interval": "1h", "heartbeat_timeout": "1m"},
        {"heartbeat_timeout": "1ms"},
        {"heartbeat_interval": "1m", "heartbeat_timeout": "1m"},
        {"slot_lag_warning": "2GB", "slot_lag_critical": "1GB"},
        {"slot_lag_warning": "1024MB"},
        {"slot_lag_warning": -1},
        {"slot_lag_warning": 0},
        {"slot_lag_warning": "1 parsec"},
        {"slot_lag_warning": "1mb"},
        {"wal_transition_timeout": "0s"},
        {"min_schedule": timedelta(microseconds=1)},
        {"min_schedule": None},
        {"min_schedule": "-1s"},
        {"differential_max_change_ratio": float("nan")},
        {"differential_max_change_ratio": -0.1},
        {"max_lookup_rows": -1},
        {"max_consecutive_errors": 0},
        {"max_lock_share": 0},
        {"enabled": "perhaps"},
        {"scheduler_interval": "1ms"},
        {"max_concurrent_refreshes": 0},
        {"shutdown_timeout": 30},
        {"verify_budget": 1.5},
        {"verify_budget": -0.1},
        {"history_retention": "1 month"},
        {"block_source_ddl": 2},
        {"cdc_mode": "sometimes"},
        {"spark_master": "nonsense"},
        {"spark_master": ""},
        {"spark_master": "local[x]"},
        {"spark_conf": {"spark.x": None}},
        {"spark_conf": "x"},
        {"spark_driver_memory": "1kB"},
        {"nosuch": 1},
    ],
    ids=str,
)
def test_values_that_make_no_sense_are_refused_with_a_hint(given: dict[str, object]) -> None:
    """A heartbeat of 0 s, and a warning that comes after the critical lag, were accepted."""
    with pytest.raises(BadSetting) as caught:
        Settings(**given)
    assert caught.value.hint


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[4]", "local[2,3]", "spark://h:7077", "yarn", "k8s://x"]
)
def test_places_that_spark_knows_are_accepted(master: str) -> None:
    assert Settings(spark_master=master).spark_master == master


@pytest.mark.parametrize("content", [b"\xff\xfe", None], ids=["not UTF-8", "a directory"])
def test_a_settings_file_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    path = tmp_path / "other.toml"
    path.mkdir() if content is None else path.write_bytes(content)
    monkeypatch.setenv("MILLSTREAM_CONFIG", str(path))
    with pytest.raises(BadSetting):
        Settings()


STRANGER = 12_345
# Each of these would run code of whoever wrote it, send rows elsewhere, or lower a protection.
HARMFUL = {
    "spark_conf": '[spark_conf]\n"spark.driver.extraJavaOptions" = "-javaagent:evil.jar"\n',
    "spark_master": 'spark_master = "spark://evil:7077"\n',
    "spark_driver_memory": 'spark_driver_memory = "256MB"\n',
    "trusted_roles": 'trusted_roles = ["evil"]\n',
    "allow_direct_writes": "allow_direct_writes = true\n",
    "auto_replica_identity": "auto_replica_identity = true\n",
    "verify_budget": "verify_budget = 0\n",
    "history_retention": 'history_retention = "1s"\n',
    "block_source_ddl": "block_source_ddl = true\n",
}
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def _of_another_user(file: Path) -> None:
    os.chown(file, STRANGER, STRANGER)


def _writable_by_all(file: Path) -> None:
    file.chmod(0o666)


def _writable_by_a_group(file: Path) -> None:
    os.chown(file, -1, STRANGER)
    file.chmod(0o664)


def _link_of_another_user(file: Path) -> None:
    file.rename("ours.toml")
    file.symlink_to("ours.toml")
    os.chown(file, STRANGER, STRANGER, follow_symlinks=False)


WAYS = [
    pytest.param(_of_another_user, marks=AS_ROOT),
    _writable_by_all,
    pytest.param(_writable_by_a_group, marks=AS_ROOT),
    pytest.param(_link_of_another_user, marks=AS_ROOT),
]


@pytest.mark.parametrize("opened", WAYS)
@pytest.mark.parametrize("name", HARMFUL)
def test_a_file_that_others_could_have_written_sets_nothing_harmful(
    name: str, opened: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug: `millstream.toml` of any working directory could set Java's options, so a directory
    that somebody else had prepared ran code with the rights of whoever ran a command in it.
    """
    file = Path("millstream.toml")
    file.write_text(HARMFUL[name])
    ours = Settings()
    opened(file)
    with pytest.raises(BadSetting) as caught:
        Settings()
    assert name in caught.value.message
    assert "MILLSTREAM_CONFIG" in caught.value.hint
    # Both ways of the hint.
    monkeypatch.setenv("MILLSTREAM_CONFIG", str(file.absolute()))
    assert Settings() == ours
    monkeypatch.delenv("MILLSTREAM_CONFIG")
    _close(file)
    assert Settings() == ours


def _close(file: Path) -> None:
    if os.geteuid() == 0:
        os.chown(file, 0, 0, follow_symlinks=False)
    file.chmod(0o644)


@pytest.mark.parametrize("opened", WAYS)
def test_a_file_that_others_could_have_written_sets_what_can_do_no_harm(
    opened: Callable[[Path], None],
) -> None:
    file = Path("millstream.toml")
    file.write_text("max_lookup_rows = 7\n")
    opened(file)
    assert Settings().max_lookup_rows == 7


def test_every_setting_is_known_to_be_harmless_or_harmful() -> None:
    assert set(Settings.model_fields) == HARMLESS | set(HARMFUL)
    assert not HARMLESS & set(HARMFUL)


@AS_ROOT
def test_a_command_in_a_directory_that_somebody_prepared_runs_no_java_of_theirs(
    tmp_path: Path,
) -> None:
    file = Path("millstream.toml")
    file.write_text(HARMFUL["spark_conf"])
    _of_another_user(file)
    command = [
        sys.executable,
        "-m",
        "millstream",
        "list",
        "--dsn",
        "postgresql://nobody@127.0.0.1:1/none",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 2
    assert "not trusted to set spark_conf" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_file_that_cannot_be_read_is_refused_in_our_words() -> None:
    Path("millstream.toml").write_bytes(b'spark_master = "\xff"\n')
    with pytest.raises(BadSetting, match="settings file"):
        Settings()
