"""`millstream status`: freshness, waiting changes, capture, and what readers should know."""

from __future__ import annotations

import json
from types import SimpleNamespace

from tests.cli.conftest import AT, Line, report, status

from millstream.cli.exit_codes import Exit
from millstream.cli.output import moment


def test_status_shows_when_a_failed_refresh_is_tried_again(line: Line) -> None:
    line.double.answers["status"] = [
        status(next_try_at=AT, last_transient_error="disk full"),
        status(name="other", next_try_at=AT, last_error="it broke"),
    ]
    told = line("status").err
    assert f"totals: not tried again by schedule before {moment(AT)}: disk full" in told
    assert f"other: it broke\nother: not tried again by schedule before {moment(AT)}\n" in told


def test_status_shows_age_waiting_changes_and_the_last_error(line: Line) -> None:
    line.double.answers["status"] = [status(last_error="it broke", consecutive_errors=2)]
    ended = line("status")
    assert "0.4 s" in ended.out
    assert "17" in ended.out
    assert "totals: it broke" in ended.err
    assert json.loads(line("status", "--json").out)[0]["data_timestamp"] == AT.isoformat()


def test_status_and_create_say_which_sources_stay_on_triggers_and_why(line: Line) -> None:
    reason = "ALTER TABLE public.orders REPLICA IDENTITY FULL;"
    source = SimpleNamespace(name="public.orders", cdc_mode="TRIGGER", reason=reason)
    line.double.answers["status"] = [
        status(sources=(source,)),
        status(name="other", sources=(source,)),
    ]
    assert line("status").out.count(f"public.orders: TRIGGER. {reason}") == 1
    line.double.answers["create_stream_table"] = report(
        notices=(f"public.orders is captured by triggers. {reason}",)
    )
    assert (
        f"public.orders is captured by triggers. {reason}"
        in line("create", "totals", "SELECT 1").out
    )


def test_status_shows_notes_about_the_rows(line: Line) -> None:
    line.double.answers["status"] = [status(notices=("It holds all rows.",))]
    assert line("status").err == "totals: It holds all rows.\n"


def test_status_of_one_table_and_of_an_unknown_one(line: Line) -> None:
    line.double.answers["status"] = [status(), status(name="other")]
    assert "other" not in line("status", "public.totals").out
    assert line("status", "nobody").code == Exit.FAILED
