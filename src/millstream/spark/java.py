"""Find the Java that Spark runs on, and raise a clear error if it is missing or too old."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from millstream.errors import JavaMissing

OLDEST = 17


@dataclass(frozen=True)
class Java:
    """The Java that Spark will use."""

    major: int
    told: str
    """The whole output of `java -version`."""


def java() -> Java:
    """Return the installed Java; raise JavaMissing if there is none, or it is too old."""
    program = _program()
    if program is None:
        raise JavaMissing.found("No java program was found in JAVA_HOME or on the PATH.")
    ran = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    told = ran.stderr + ran.stdout
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    if found is None:
        raise JavaMissing.found(f"{program} did not print its version.")
    # Before 9, Java called itself 1.8.
    major = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < OLDEST:
        raise JavaMissing.found(f"{program} is Java {major}.")
    return Java(major, told)


def _program() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        return str(program) if program.exists() else None
    return shutil.which("java")
