"""Which log events a command shows on stderr."""

from __future__ import annotations

import json
import logging

from tests.cli.conftest import Line

from millstream.errors import RefreshFailed
from millstream.observe import log


def test_what_is_being_done_is_printed_on_stderr_when_asked_for(line: Line) -> None:
    def answer() -> list[object]:
        log.info("looked", rows=3)
        return []

    line.double.answers["status"] = answer
    assert "INFO looked rows=3" in line("--verbose", "list").err
    assert line("list").err == ""
    assert logging.getLogger("millstream").level == logging.NOTSET


def test_events_that_the_error_repeats_are_not_shown_and_with_json_none_is(line: Line) -> None:
    def answer() -> list[object]:
        log.warning("half-made", table="totals")
        log.error("refresh failed", code="MS402")
        log.warning("Java says", line="no room")
        raise RefreshFailed.because("totals", "It broke.")

    line.double.answers["status"] = answer
    first, *rest = line("list").err.splitlines()
    assert first.endswith("WARNING half-made table=totals")
    assert rest[:3] == [
        'error: refresh of "totals" failed [MS402]',
        "detail: It broke.",
        "Java said:",
    ]
    assert (
        json.loads(line("list", "--json").err)["error"]["detail"]
        == "It broke.\nJava said:\nno room"
    )
    assert "ERROR refresh failed code=MS402" in line("--verbose", "list").err
