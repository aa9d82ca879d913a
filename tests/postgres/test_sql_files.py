"""Named blocks of SQL files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from millstream.postgres.sql_files import load


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with one SQL file, importable during the test."""
    name = "package_with_sql"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    (tmp_path / name / "two.sql").write_text(
        "-- first --\n-- A comment.\nSELECT 1;\n\n-- second --\nSELECT 2;\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import_module(name)
    load.cache_clear()
    return name


def test_a_file_gives_its_blocks_by_name(package: str) -> None:
    assert load(package, "two.sql") == {"first": "-- A comment.\nSELECT 1;", "second": "SELECT 2;"}


def test_a_misspelt_name_is_an_error(package: str) -> None:
    with pytest.raises(KeyError):
        load(package, "two.sql")["frist"]
