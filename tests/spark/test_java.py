"""Java is looked for before Spark starts: what is missing is named, and the command that installs
it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import (
    JavaMissing,
)
from millstream.spark import java


def test_a_missing_java_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JavaMissing) as caught:
        java.java()
    assert caught.value.code == "MS003"
    assert "apt-get install" in caught.value.hint


def test_an_old_java_is_named_with_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="Java 17"):
        java.java()
