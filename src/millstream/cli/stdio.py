"""The program's own streams, made fit for whatever we print.

A stream that was closed (`>&-`) is opened and leads nowhere: its number would otherwise become that
of our connection to the server, and Java would print into it. A character that a stream's encoding
lacks is written by its number.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TextIO

_STDERR = 2


def make_fit() -> None:
    """Open what is closed, and let no character be an error."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)
    os.close(number)
    # Python has None for a stream that was closed when it started, whatever its types say.
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
