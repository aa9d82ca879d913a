"""Processes of `millstream run`: standby, takeover, signals.

The databases are empty, so that Spark is not started.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psycopg
import pytest
from tests.service.run.conftest import leader_pid, started, wait_for_leader

from millstream.testing.waiting import wait_until

TAKEOVERS = int(os.environ.get("MILLSTREAM_TEST_TAKEOVERS", "2"))


def epoch(database: str) -> int:
    with psycopg.connect(database) as conn:
        [(number,)] = conn.execute("SELECT epoch FROM millstream.leadership").fetchall()
        return int(number)


def test_a_standby_takes_over_from_a_leader_that_is_killed_or_hangs(
    database: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    took = list[float]()
    for number in range(TAKEOVERS):
        with started(database, log) as first, started(database, log) as second:
            pid = wait_for_leader(database)
            leader, standby = (first, second) if pid == first.pid else (second, first)
            wait_until(lambda: both_registered(database))
            before, began = epoch(database), time.monotonic()
            # A process that is stopped still has its connections, as one behind a broken network
            # has.
            leader.popen.send_signal(signal.SIGKILL if number % 2 else signal.SIGSTOP)
            assert wait_for_leader(database, other_than=pid) == standby.pid
            took.append(time.monotonic() - began)
            assert epoch(database) == before + 1
            if number % 2 == 0:
                # Awake again it finds that it no longer leads, and stands by.
                leader.popen.send_signal(signal.SIGCONT)
                wait_until(lambda: both_registered(database))
                assert leader_pid(database) == standby.pid
            assert standby.stop() == 0
    print(f"{TAKEOVERS} takeovers, the slowest {max(took):.1f} s")


def both_registered(database: str) -> bool:
    query = (
        "SELECT count(*), count(*) FILTER (WHERE role = 'LEADER') FROM millstream.services AS s"
        " JOIN pg_stat_activity AS a ON a.pid = s.backend_pid AND a.backend_start = s.backend_start"
    )
    with psycopg.connect(database) as conn:
        return conn.execute(query).fetchone() == (2, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_exit_code_0_and_leaves_nothing(
    database: str, tmp_path: Path, number: signal.Signals
) -> None:
    with started(database, tmp_path / "log") as running:
        wait_for_leader(database)
        running.popen.send_signal(number)
        assert running.popen.wait(90) == 0
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM millstream.services").fetchone() == (0,)


def test_it_waits_for_a_server_that_is_not_there_yet_but_not_for_a_wrong_database(
    database: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    nowhere = (
        f"{database} host={tmp_path} port=1"
        if "=" in database
        else f"{database}?host={tmp_path}&port=1"
    )
    with started(nowhere, log) as running:
        wait_until(lambda: running.said("waiting for the server"))
        assert running.stop() == 0
    with started(f"{database}_that_does_not_exist", log) as running:
        assert running.popen.wait(90) != 0
    assert running.said("does not exist")


def test_sighup_reads_the_settings_file_again(database: str, tmp_path: Path) -> None:
    file = tmp_path / "millstream.toml"
    file.write_text('scheduler_interval = "300ms"\n')
    with started(database, tmp_path / "log", MILLSTREAM_CONFIG=str(file)) as running:
        wait_for_leader(database)
        wait_until(lambda: running.said("leading"))
        file.write_text("max_concurrent_refreshes = 0\n")
        running.popen.send_signal(signal.SIGHUP)
        wait_until(lambda: running.said("settings not read"))
        file.write_text("max_concurrent_refreshes = 3\n")
        running.popen.send_signal(signal.SIGHUP)
        wait_until(lambda: running.said("settings read"))
        assert running.stop() == 0
