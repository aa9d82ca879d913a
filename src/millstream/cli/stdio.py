"""The standard streams of the program, prepared for any output.

A closed stream (`>&-`) is opened on the null device: otherwise its file descriptor would become
that of the connection to the server, and Java would print into it. Characters that a stream's
encoding lacks are escaped.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TextIO

_STDERR = 2


def make_fit() -> None:
    """Open closed streams, and escape characters that cannot be encoded."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)
    os.close(number)
    # Python sets a stream that was closed at its start to None, against its type annotations.
    sys.stdin = sys.stdin or _nowhere()
    sys.stdout = _lenient(sys.stdout or _nowhere())
    sys.stderr = _lenient(sys.stderr or _nowhere())


def is_unicode(stream: TextIO) -> bool:
    """Return True if the stream can encode every character."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("r+", encoding="utf-8")


def _lenient(stream: TextIO) -> TextIO:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream
