"""Log events: their fields, for people and for programs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from millstream.observe import log


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Where `show` prints in a test; hidden again after it."""
    shown: list[logging.Handler] = []
    show = log.show
    monkeypatch.setattr(log, "show", lambda *given, **named: shown.append(show(*given, **named)))
    yield io.StringIO()
    for handler in shown:
        log.hide(handler)


def test_an_event_prints_with_its_fields(stream: io.StringIO) -> None:
    log.show(stream=stream)
    log.info("refreshed", table="totals", rows=3, reason="two words", nothing="")
    assert (
        stream.getvalue()
        .rstrip()
        .endswith('INFO refreshed table=totals rows=3 reason="two words" nothing=""')
    )


def test_no_value_controls_the_terminal_or_forges_a_line(stream: io.StringIO) -> None:
    log.show(stream=stream)
    log.info("refreshed", table="t\x1b[2J", other="t\n12:00:00 ERROR forged", third="\u202e")
    assert stream.getvalue().endswith(
        r'table=t\x1b[2J other="t\n12:00:00 ERROR forged" third=\u202e' + "\n"
    )


def test_a_percent_sign_in_an_event_is_no_format(stream: io.StringIO) -> None:
    log.show(stream=stream)
    log.warning("100 % done", share="5%")
    assert "WARNING 100 % done share=5%" in stream.getvalue()


def test_events_below_the_level_are_not_printed(stream: io.StringIO) -> None:
    log.show(logging.WARNING, stream=stream)
    log.info("refreshed")
    log.debug("read")
    log.error("stopped")
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["ERROR"]


def test_as_json_each_line_is_an_object(stream: io.StringIO) -> None:
    log.show(as_json=True, stream=stream)
    log.info("refreshed", table="tötals", rows=3, level="mine")
    event = json.loads(stream.getvalue())
    assert event["event"] == "refreshed"
    assert event["level"] == "INFO"
    assert event["fields"] == {"table": "tötals", "rows": 3, "level": "mine"}


def test_a_program_that_embeds_us_finds_the_fields_in_the_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="millstream"):
        log.info("refreshed", rows=3)
    record = caplog.records[0]
    assert record.__dict__["fields"] == {"rows": 3}
    assert record.filename == "test_log.py"


def test_what_was_shown_can_be_hidden_again() -> None:
    stream = io.StringIO()
    handler = log.show(stream=stream)
    log.hide(handler)
    log.error("stopped")
    assert stream.getvalue() == ""
    assert logging.getLogger("millstream").level == logging.NOTSET
