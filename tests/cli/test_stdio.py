"""The program's streams: a closed one leads nowhere, and no character is an error."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from millstream.cli.stdio import is_unicode

FIT = "import sys; from millstream.cli import stdio; stdio.make_fit(); "


def run(shell: str, code: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run Python by a shell, which can close its streams."""
    command = ["sh", "-c", f'"$0" -c "$1" {shell}', sys.executable, FIT + code]
    return subprocess.run(command, env=environment or None, capture_output=True, check=False)


def test_a_connection_never_gets_the_number_of_a_closed_stream() -> None:
    """Java printed into our connection to the server, whose number was 1."""
    code = "import socket; print(socket.socket().fileno(), file=sys.stderr)"
    assert int(run(">&-", code).stderr) > 2


def test_printing_to_a_closed_stream_is_no_error() -> None:
    ended = run(">&- 2>&-", "print('x'); print('y', file=sys.stderr); sys.stdin.read()")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_a_character_that_the_encoding_lacks_is_written_by_its_number() -> None:
    ended = run("", "print('\\u2713 done')", PYTHONIOENCODING="ascii")
    assert ended.stdout == b"\\u2713 done\n"


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("utf-8", True), ("UTF-16", True), ("ascii", False), ("latin-1", False)],
)
def test_only_unicode_carries_every_character(encoding: str, expected: bool) -> None:
    assert is_unicode(io.TextIOWrapper(io.BytesIO(), encoding=encoding)) is expected
