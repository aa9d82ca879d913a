"""`millstream run`: which log it shows while the service runs.

The service itself is tested in `service/run`.
"""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Line

from millstream.observe import log
from millstream.service.run import process


class Process:
    """A double of the service: it logs an event of each level, and ends."""

    def __init__(self, dsn: str, read_settings: object) -> None:
        self.dsn = dsn

    def run(self) -> None:
        log.debug("looked")
        log.info("ready")
        log.warning("slow")


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "Process", Process)


@pytest.mark.parametrize(
    ("arguments", "events"),
    [
        (("run",), ["INFO ready", "WARNING slow"]),
        (("run", "--quiet"), ["WARNING slow"]),
        (("--verbose", "run"), ["DEBUG looked", "INFO ready", "WARNING slow"]),
    ],
)
def test_the_log_has_the_events_of_the_level_that_was_asked_for(
    line: Line, arguments: tuple[str, ...], events: list[str]
) -> None:
    ended = line(*arguments)
    assert (ended.code, ended.out) == (0, "")
    lines = ended.err.splitlines()
    assert len(lines) == len(events)
    assert all(event in shown for event, shown in zip(events, lines, strict=True))


def test_with_json_each_event_is_a_document(line: Line) -> None:
    documents = [json.loads(text) for text in line("run", "--json").err.splitlines()]
    assert [document["event"] for document in documents] == ["ready", "slow"]


def test_the_log_is_silent_after_the_command(
    line: Line, capsys: pytest.CaptureFixture[str]
) -> None:
    line("run")
    log.info("later")
    assert capsys.readouterr().err == ""
