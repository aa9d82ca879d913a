"""The program as a process: what it prints on its two streams, and how Ctrl-C ends it, down to
Java.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from psycopg.conninfo import make_conninfo

import millstream
from millstream.bundled.server import Server, embedded
from millstream.postgres.connection import connect
from millstream.testing import forks

PROGRAM = Path(millstream.__file__).with_name("__main__.py")
QUICKSTART = Path(__file__).parents[2] / "docs" / "quickstart.md"

ORDERS = """
CREATE TABLE orders (id bigint PRIMARY KEY, region text NOT NULL, amount numeric(12,2) NOT NULL);
INSERT INTO orders VALUES (1, 'north', 10), (2, 'süd €', 20), (3, 'north', 5);
CREATE ROLE clerk LOGIN;
"""
TOTALS = "SELECT region, sum(amount) AS total FROM orders GROUP BY region"
SHARES = "SELECT id, region, 10 / (amount - 100) AS share FROM orders"

# A Java that tells its version and can do nothing else.
BROKEN_JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit 0; fi
echo "no room for a heap" >&2
exit 1
"""

NOT_TODAY = """
CREATE FUNCTION not_today() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN RAISE 'nothing is dropped today' USING HINT = 'Come back tomorrow.'; END $$;
CREATE EVENT TRIGGER not_today ON sql_drop EXECUTE FUNCTION not_today();
"""

LAST_WORDS = """
import contextlib, time
from millstream.observe import log
from millstream.spark.session import start
log.show()
java = start("local[1]", {}).sparkContext._jvm.java.lang.System
java.out.println("no room left")
with contextlib.suppress(Exception):
    java.exit(3)
time.sleep(2)
"""

pytestmark = pytest.mark.spark


def program(*arguments: str) -> list[str]:
    """The command line of the program, in this environment."""
    return [sys.executable, "-m", "millstream", *arguments]


def ran(dsn: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the program to its end; by an interpreter of its own where more of the environment is
    another.
    """
    given = {**os.environ, "MILLSTREAM_DSN": dsn, **environment}
    if environment:
        return subprocess.run(
            program(*arguments), env=given, capture_output=True, check=False, timeout=300
        )
    done = forks.run(PROGRAM, *arguments, environment=given, timeout=300)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.encode(), done.stderr.encode()
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of our own with two stream tables, of which one cannot be refreshed."""
    with embedded() as running, connect(running.dsn) as conn:
        conn.execute(ORDERS.encode())
        for name, query in (("totals", TOTALS), ("shares", SHARES)):
            assert ran(running.dsn, "create", name, query, "--no-initialize").returncode == 0
        conn.execute("INSERT INTO orders VALUES (4, 'north', 100)")
        yield running


@pytest.fixture(scope="module")
def dsn(server: Server) -> str:
    """The database of that server."""
    return server.dsn


# -- stderr ----------------------------------------------------------------------------------


def test_the_error_of_a_refresh_is_the_only_document_on_stderr(dsn: str) -> None:
    ended = ran(dsn, "refresh", "shares", "--json")
    assert ended.returncode == 5
    assert ended.stdout == b""
    assert json.loads(ended.stderr)["error"]["detail"] == "division by zero"


def test_the_error_of_a_refresh_is_printed_once(dsn: str) -> None:
    first, *rest = ran(dsn, "refresh", "shares").stderr.decode().splitlines()
    assert first == 'error: refresh of "shares" failed [MS402]'
    assert [line.partition(":")[0] for line in rest] == ["detail", "hint"]


def test_a_command_that_succeeds_leaves_stderr_empty_though_spark_starts(dsn: str) -> None:
    ended = ran(dsn, "refresh", "totals", "--full")
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_what_java_says_when_it_does_not_start_is_in_the_detail(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(BROKEN_JAVA)
    java.chmod(0o755)
    ended = ran(dsn, "refresh", "totals", "--full", "--json", JAVA_HOME=str(tmp_path))
    error = json.loads(ended.stderr)["error"]
    assert (ended.returncode, error["code"]) == (4, "MS003")
    assert "no room for a heap" in error["detail"]


def test_what_java_says_at_its_end_is_an_event_and_nothing_else_is_printed() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LAST_WORDS], capture_output=True, check=False, text=True, timeout=120
    )
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.endswith('WARNING Java says line="no room left"')


# -- Ctrl-C ----------------------------------------------------------------------------------


def alive(mark: str) -> list[str]:
    """The names of the processes that have the mark in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "comm").read_text().strip())
        except OSError:
            continue
    return found


def has_tasks(mark: str) -> bool:
    """True when the Java that has the mark in its environment has begun to run tasks of Spark."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                threads = [(thread / "comm").read_text() for thread in (process / "task").iterdir()]
                if any(thread.startswith("Executor task") for thread in threads):
                    return True
        except OSError:
            continue
    return False


def until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait for it, so long at most; was it so?"""
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.1)
    return is_so()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Abort the process; its exit status and what it has printed, with the place in the code where
    it was.
    """
    process.send_signal(signal.SIGABRT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("later", [0.0, 1.0])
def test_ctrl_c_while_spark_starts_ends_java_too(dsn: str, later: float) -> None:
    mark = uuid4().hex
    given = {**os.environ, "MILLSTREAM_DSN": dsn, "MARK": mark, "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(
        program("refresh", "totals", "--full"), env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert until(lambda: "java" in alive(mark), 60), (alive(mark), ended(process))
        time.sleep(later)
        # As a terminal does it: to all of them.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (out, err) == (b"", b"interrupted: nothing was left half done\n")
    assert until(lambda: alive(mark) == [], 60), alive(mark)


# Interrupts its own process when a module is about to be imported, as Ctrl-C at that moment would.
INTERRUPTER = """
import os, signal, sys
class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupter())
"""
# From the first module of the program to the last: of the command line, the server's driver, the
# planner, Spark.
IMPORTS = ("millstream.cli.app", "psycopg", "sqlglot", "pyspark.sql")


def test_ctrl_c_while_modules_are_imported_is_one_line_and_130(dsn: str, tmp_path: Path) -> None:
    """It was a traceback from amid an import, and ended by the signal."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTER)
    given = {**os.environ, "MILLSTREAM_DSN": dsn, "PYTHONPATH": str(tmp_path)}
    started = {
        (module, *options): subprocess.Popen(
            program("list", *options), env={**given, "INTERRUPT_AT": module},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for module, *options in (*((module,) for module in IMPORTS), ("rich.console", "--json"))
    }  # fmt: skip
    for (module, *options), process in started.items():
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (130, b""), (module, err)
        if options:
            assert json.loads(err)["error"]["message"] == "interrupted", module
        else:
            assert err == b"interrupted: nothing was left half done\n", module


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for threads in /proc")
def test_ctrl_c_while_spark_works_is_a_cancelled_refresh_and_not_a_failed_one(dsn: str) -> None:
    """It was recorded as a failure, and three of them suspended the stream table.

    Now and then it still was: where Java had to say how the job ended, its error came in place of
    the interrupt.
    """
    pairs = "SELECT count(*) AS n FROM numbers AS a JOIN numbers AS b ON a.n < b.n"
    with connect(dsn) as conn:
        conn.execute("CREATE TABLE numbers (n int PRIMARY KEY)")
        assert ran(dsn, "create", "pairs", pairs, "--no-initialize").returncode == 0
        conn.execute("INSERT INTO numbers SELECT generate_series(1, 60000)")
        mark = uuid4().hex
        given = {**os.environ, "MILLSTREAM_DSN": dsn, "MARK": mark}
        with subprocess.Popen(
            program("refresh", "pairs"), env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:  # fmt: skip
            assert until(lambda: has_tasks(mark), 90)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (
            130,
            b"",
            b"interrupted: nothing was left half done\n",
        )
        recorded = "SELECT status, reason FROM millstream.refresh_history ORDER BY id DESC LIMIT 1"
        assert conn.execute(recorded).fetchall() == [("CANCELLED", "MS407")]
        counted = "SELECT consecutive_errors, transient_errors FROM millstream.stream_tables WHERE name = 'pairs'"
        assert conn.execute(counted).fetchall() == [(0, 0)]
        assert ran(dsn, "drop", "pairs").returncode == 0


# -- errors of the server --------------------------------------------------------------------


@pytest.fixture
def clerks(server: Server) -> Iterator[str]:
    """A database of a role that is no superuser, with a stream table in it."""
    dsn = server.dsn_for("clerk", "clerks")
    with connect(server.dsn) as conn:
        conn.execute("CREATE DATABASE clerks OWNER clerk")
        with connect(dsn) as own:
            own.execute("CREATE TABLE visits (id int PRIMARY KEY)")
        assert (
            ran(dsn, "create", "seen", "SELECT id FROM visits", "--no-initialize").returncode == 0
        )
        yield dsn
        conn.execute("DROP DATABASE clerks WITH (FORCE)")


def test_a_missing_privilege_is_reported_in_the_words_of_the_server(
    server: Server, clerks: str
) -> None:
    with connect(make_conninfo(server.dsn, dbname="clerks")) as conn:
        conn.execute("REVOKE SELECT ON millstream.stream_tables FROM clerk")
    ended = ran(clerks, "list", "--json")
    error = json.loads(ended.stderr)["error"]
    assert ended.returncode == 4
    assert (error["code"], error["message"]) == (
        "MS004",
        "permission denied for table stream_tables",
    )
    assert error["facts"] == {"sqlstate": "42501"}


def test_any_other_error_of_the_server_is_an_error_and_no_traceback(
    server: Server, clerks: str
) -> None:
    with connect(make_conninfo(server.dsn, dbname="clerks")) as conn:
        conn.execute(NOT_TODAY)
    ended = ran(clerks, "uninstall", "--yes")
    first, *rest = ended.stderr.decode().splitlines()
    assert ended.returncode == 4
    assert first == "error: nothing is dropped today [MS013]"
    assert rest[-1] == "hint: Come back tomorrow."
    assert "Traceback" not in ended.stderr.decode()


# -- stdout ----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "latin-1:strict"])
def test_a_character_that_the_stream_lacks_is_written_by_its_number(
    dsn: str, encoding: str
) -> None:
    with connect(dsn) as conn:
        conn.execute('CREATE TABLE IF NOT EXISTS "süd €" (id int PRIMARY KEY)')
    refused = ran(
        dsn, "create", '"süd €"', "SELECT id FROM orders", "--json", PYTHONIOENCODING=encoding
    )
    assert json.loads(refused.stderr.decode("ascii"))["error"]["facts"]["name"] == "public.süd €"
    checked = ran(dsn, "doctor", PYTHONIOENCODING=encoding)
    assert checked.returncode == 0, checked.stderr
    assert b"\\u2713" in checked.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(dsn: str, closed: str) -> None:
    given = {**os.environ, "MILLSTREAM_DSN": dsn}
    line = f"'{sys.executable}' -m millstream list {closed}"
    ended = subprocess.run(
        ["bash", "-c", line], env=given, capture_output=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


# -- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["refresh", "verify"])
def test_an_unknown_name_among_others_is_found_before_anything_is_refreshed(
    dsn: str, command: str
) -> None:
    with connect(dsn) as conn:
        before = conn.execute("SELECT count(*) FROM millstream.refresh_history").fetchall()
        ended = ran(dsn, command, "totals", "nosuch", "--json")
        assert json.loads(ended.stderr)["error"]["code"] == "MS202"
        assert conn.execute("SELECT count(*) FROM millstream.refresh_history").fetchall() == before


# -- the quickstart --------------------------------------------------------------------------


def test_the_loop_of_the_quickstart_keeps_a_schedule(dsn: str) -> None:
    loop = next(
        block
        for block in re.findall(r"```python\n(.*?)```", QUICKSTART.read_text(), re.DOTALL)
        if "tick" in block
    )
    ticked = "SELECT FROM millstream.refresh_history WHERE initiated_by = 'SCHEDULER' AND status = 'COMPLETED'"
    with connect(dsn) as conn:
        conn.execute("UPDATE millstream.stream_tables SET schedule = '1s' WHERE name = 'totals'")
        conn.execute("INSERT INTO orders VALUES (5, 'west', 1)")
        with subprocess.Popen(
            [sys.executable, "-c", f"dsn = {dsn!r}\n{loop}"], stderr=subprocess.PIPE
        ) as process:
            has_ticked = until(lambda: bool(conn.execute(ticked).fetchall()), 120)
            process.terminate()
        assert has_ticked
