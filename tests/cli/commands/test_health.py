"""`millstream health`: its exit code tells whether something is wrong."""

from __future__ import annotations

import json

from tests.cli.conftest import Line

from millstream.cli.exit_codes import Exit
from millstream.service.monitoring.doctor import Check

FINE = Check("totals", True, "0.4 s old")
BROKEN = Check("source orders", False, "no trigger", "Refresh it.")


def test_it_ends_with_0_when_everything_keeps_up(line: Line) -> None:
    line.double.answers["health"] = [FINE]
    ended = line("health")
    assert ended.code == Exit.OK
    assert "0.4 s old" in ended.out


def test_it_ends_with_1_and_says_what_to_do_when_something_is_wrong(line: Line) -> None:
    line.double.answers["health"] = [FINE, BROKEN]
    ended = line("health")
    assert ended.code == Exit.CHECK_FAILED
    assert "Refresh it." in ended.out
    ended = line("health", "--json")
    assert ended.code == Exit.CHECK_FAILED
    assert [check["ok"] for check in json.loads(ended.out)] == [True, False]
