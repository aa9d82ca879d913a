"""The embedded server: only the user that started it reaches it."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest

from millstream.bundled import server as servers
from millstream.bundled.server import Server

# Any user but the one that the server runs as.
STRANGER = 12_345


def _psql(server: Server, *where: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [
        str(server.bindir / "psql"),
        "-XAtU",
        "postgres",
        "-p",
        str(servers.PORT),
        *where,
        "-c",
        "SELECT 1",
    ]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, user=user, group=user, cwd="/"
    )


def test_its_socket_is_in_a_directory_of_its_users_alone(server: Server) -> None:
    found = server.directory.stat()
    assert stat.S_IMODE(found.st_mode) == 0o700
    assert found.st_uid == (pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else os.getuid())
    assert server.socket.is_socket()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_another_user_of_the_machine_cannot_connect(server: Server) -> None:
    """The bug: with trust on a TCP port, any user of the machine connected as superuser and ran
    programs.
    """
    denied = _psql(server, "-h", str(server.directory), user=STRANGER)
    assert denied.returncode == 2
    assert "Permission denied" in denied.stderr
    assert _psql(server, "-h", str(server.directory)).stdout == "1\n"


def test_it_listens_on_no_port_and_trusts_nobody_by_tcp(server: Server) -> None:
    with psycopg.connect(server.dsn) as conn:
        assert conn.execute("SHOW listen_addresses").fetchall() == [("",)]
        rules = conn.execute("SELECT type, auth_method FROM pg_hba_file_rules").fetchall()
    assert {method for kind, method in rules if kind != "local"} == {"reject"}


def test_a_long_name_of_the_temporary_directory_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    made = servers._private_directory()
    try:
        assert len(os.fsencode(made / ".s.PGSQL.5432")) < 104
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        assert list(long.iterdir()) == []
    finally:
        made.rmdir()


def test_names_of_roles_and_databases_may_have_any_letters(server: Server) -> None:
    dsn = server.dsn_for("o'role @/ü", "data base/?")
    assert psycopg.conninfo.conninfo_to_dict(dsn) == {
        "user": "o'role @/ü", "dbname": "data base/?", "host": str(server.directory), "port": str(servers.PORT),
    }  # fmt: skip
