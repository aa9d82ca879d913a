"""Each command: what it asks of the API, what it prints, how it ends."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from millstream.catalog.upstreams import Behind
from millstream.cli.exit_codes import Exit
from millstream.cli.output import moment
from millstream.errors import NoSuchStreamTable, RefreshFailed
from millstream.observe import log

from .conftest import AT, Line, report, status, verification


def test_the_database_of_the_option_wins_over_the_environment(line: Line) -> None:
    line.double.answers["status"] = []
    line("list", "--dsn", "postgresql://other/d")
    assert line.double.called("connect") == [(("postgresql://other/d",), {})]
    assert line.double.calls[-1][0] == "close"


def test_init_connects_and_says_so(line: Line) -> None:
    line.double.answers["status"] = [status()]
    assert line("init").out == 'Millstream is installed in database "d", with 1 stream tables.\n'
    assert json.loads(line("init", "--json").out) == {"installed": True, "database": "d", "stream_tables": 1}


def test_create_hands_over_what_was_given(line: Line) -> None:
    line.double.answers["create_stream_table"] = report(action="FULL", reason="initial")
    options = ("--schedule", "5m", "--mode", "differential", "--no-initialize", "--cdc-mode", "wal", "--owner", "me")
    ended = line("create", "shop.totals", "SELECT 1", *options)
    given = {"schedule": "5m", "refresh_mode": "DIFFERENTIAL", "initialize": False, "cdc_mode": "wal", "owner": "me"}
    assert line.double.called("create_stream_table") == [(("shop.totals", "SELECT 1"), given)]
    assert ended.out.startswith("shop.totals is created. FULL: 1,234 rows read, 1 inserted")


def test_alter_hands_over_what_was_given_and_nothing_else(line: Line) -> None:
    ended = line("alter", "shop.totals", "--status", "suspended", "--schedule", "5m")
    assert ended.out == "shop.totals is altered.\n"
    line("alter", "t", "--refresh-mode", "full", "--cdc-mode", "WAL", "--query", "SELECT 2", "--json")
    line("alter", "t", "--query", "-", stdin="SELECT 3")
    assert line.double.called("alter_stream_table") == [
        (("shop.totals",), {"status": "SUSPENDED", "schedule": "5m"}),
        (("t",), {"refresh_mode": "FULL", "cdc_mode": "wal", "query": "SELECT 2"}),
        (("t",), {"query": "SELECT 3"}),
    ]


def test_alter_tells_what_another_query_has_changed(line: Line) -> None:
    line.double.answers["alter_stream_table"] = report(action="FULL", reason="initial")
    assert line("alter", "t", "--query", "SELECT 2").out.startswith("t is altered. FULL: 1,234 rows read, 1 inserted")


def test_status_tells_when_a_failed_refresh_is_tried_again(line: Line) -> None:
    line.double.answers["status"] = [
        status(next_try_at=AT, last_transient_error="disk full"),
        status(name="other", next_try_at=AT, last_error="it broke"),
    ]
    told = line("status").err
    assert f"totals: not tried again by schedule before {moment(AT)}: disk full" in told
    assert f"other: it broke\nother: not tried again by schedule before {moment(AT)}\n" in told


@pytest.mark.parametrize(
    "arguments", [(), ("--status", "ERROR"), ("--refresh-mode", "never"), ("--query", "SELECT 1", "--file", "q.sql")]
)
def test_alter_needs_something_to_change_that_makes_sense(line: Line, arguments: tuple[str, ...]) -> None:
    assert line("alter", "t", *arguments).code == Exit.USAGE
    assert line.double.called("alter_stream_table") == []


def test_create_without_initializing_says_what_comes_next(line: Line) -> None:
    assert line("create", "t", "SELECT 1", "--no-initialize").out == "t is created; its first refresh fills it.\n"


def test_create_reads_the_query_from_stdin_or_from_a_file(line: Line, tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text("SELECT 2")
    line("create", "a", "-", stdin="SELECT 1")
    line("create", "b", "--file", str(tmp_path / "query.sql"))
    assert [given for given, _ in line.double.called("create_stream_table")] == [("a", "SELECT 1"), ("b", "SELECT 2")]


@pytest.mark.parametrize(
    "arguments", [("create", "t"), ("create", "t", "SELECT 1", "--file", "q.sql"), ("create", "t", "--file", "nowhere")]
)
def test_create_needs_the_query_from_one_place_that_is_there(line: Line, arguments: tuple[str, ...]) -> None:
    assert line(*arguments).code == Exit.USAGE
    assert line.double.called("create_stream_table") == []


def test_list_prints_a_table_or_json(line: Line) -> None:
    line.double.answers["status"] = [status(), status(name="other", status="SUSPENDED")]
    out = line("list").out
    assert "totals" in out
    assert "SUSPENDED" in out
    assert [one["name"] for one in json.loads(line("list", "--json").out)] == ["totals", "other"]


def test_list_of_nothing_tells_how_to_begin(line: Line) -> None:
    line.double.answers["status"] = []
    assert "millstream create" in line("list").out
    assert json.loads(line("list", "--json").out) == []


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
    line.double.answers["status"] = [status(sources=(source,)), status(name="other", sources=(source,))]
    assert line("status").out.count(f"public.orders: TRIGGER. {reason}") == 1
    line.double.answers["create_stream_table"] = report(notices=(f"public.orders is captured by triggers. {reason}",))
    assert f"public.orders is captured by triggers. {reason}" in line("create", "totals", "SELECT 1").out


def test_status_tells_what_readers_should_know(line: Line) -> None:
    line.double.answers["status"] = [status(notices=("It holds all rows.",))]
    assert line("status").err == "totals: It holds all rows.\n"


def test_status_of_one_table_and_of_an_unknown_one(line: Line) -> None:
    line.double.answers["status"] = [status(), status(name="other")]
    assert "other" not in line("status", "public.totals").out
    assert line("status", "nobody").code == Exit.FAILED


def test_refresh_of_several_names_refreshes_each(line: Line) -> None:
    line.double.answers["refresh"] = lambda name: report(name=name)
    out = line("refresh", "a", "b", "--full").out
    assert line.double.called("refresh") == [(("a",), {"full": True}), (("b",), {"full": True})]
    assert "1,234" in out
    assert "87 ms" in out


def test_refresh_tells_what_holds_a_stream_table_back(line: Line) -> None:
    behind = Behind(7, "public.base", "SUSPENDED", AT, "it failed [MS402]\nDETAIL: much")
    line.double.answers["refresh"] = lambda name: report(name=name, held_back_by=(behind,))
    ended = line("refresh", "a")
    assert "a is as old as what it reads: public.base is SUSPENDED: it failed [MS402]" in ended.err
    assert "public.base" not in ended.out


def test_refresh_of_all_is_one_call(line: Line) -> None:
    line.double.answers["refresh_all"] = [report(), report(name="other")]
    reports = json.loads(line("refresh", "--all", "--json").out)
    assert [one["name"] for one in reports] == ["totals", "other"]
    assert reports[0]["frontier"] == "10:20:12"


@pytest.mark.parametrize(
    "arguments",
    [("refresh",), ("refresh", "a", "--all"), ("refresh", "--all", "--full"), ("verify",), ("verify", "a", "--all")],
)
def test_names_or_all_but_not_both_and_not_neither(line: Line, arguments: tuple[str, ...]) -> None:
    assert line(*arguments).code == Exit.USAGE
    assert line.double.calls == []


def test_history_prints_what_was_done_and_why(line: Line) -> None:
    entry = SimpleNamespace(
        started_at=AT, finished_at=AT + timedelta(milliseconds=120), action="DIFFERENTIAL", reason="changes",
        status="COMPLETED", initiated_by="SCHEDULER", rows_read=5, rows_inserted=1, rows_updated=0, rows_deleted=0,
        spark_jobs=1,
    )  # fmt: skip
    line.double.answers["history"] = [entry]
    out = line("history", "totals", "-n", "3").out
    assert line.double.called("history") == [(("totals",), {"n": 3})]
    assert "120 ms" in out
    assert line("history", "totals", "-n", "0").code == Exit.USAGE


def test_explain_prints_the_text_as_it_is(line: Line) -> None:
    class Explanation:
        def __str__(self) -> str:
            return "block 1 [not markup]\n  " + "long " * 60

        def as_dict(self) -> dict[str, object]:
            return {"blocks": []}

    line.double.answers["explain"] = Explanation()
    assert line("explain", "totals").out == f"{Explanation()}\n"
    assert json.loads(line("explain", "totals", "--json").out) == {"blocks": []}


def test_verify_ends_with_0_when_all_is_equal(line: Line) -> None:
    line.double.answers["verify"] = verification()
    ended = line("verify", "totals")
    assert ended.code == Exit.OK
    assert "totals equals its query: 4 rows, none missing, none extra, at" in ended.out
    line.double.answers["verify"] = verification(rounded=("mean",))
    assert "none extra (mean to 12 digits), at" in line("verify", "totals").out


def test_verify_ends_with_1_and_names_the_rows_when_one_differs(line: Line) -> None:
    sample = [{"side": "missing", "row": ("north", 3)}, {"side": "extra", "row": ("[b]", None)}]
    bad = verification(name="bad", ok=False, missing=1, extra=1, sample=sample)
    line.double.answers["verify"] = lambda name: bad if name == "bad" else verification(name=name)
    ended = line("verify", "good", "bad")
    assert ended.code == Exit.CHECK_FAILED
    assert "bad differs from its query: 1 rows missing, 1 extra" in ended.out
    assert "('north', 3)" in ended.out
    assert "('[b]', None)" in ended.out
    assert [one["ok"] for one in json.loads(line("verify", "good", "bad", "--json").out)] == [True, False]


def test_verify_of_all_takes_the_names_from_the_catalog(line: Line) -> None:
    line.double.answers |= {"status": [status(name='O"dd')], "verify": verification()}
    assert line("verify", "--all").code == Exit.OK
    assert line.double.called("verify") == [(('"public"."O""dd"',), {})]


def test_drop_drops(line: Line) -> None:
    assert line("drop", "totals", "--cascade").out == "totals is dropped.\n"
    assert line.double.called("drop_stream_table") == [(("totals",), {"cascade": True})]


def test_adopt_says_what_was_adopted_forgotten_or_could_not_be(line: Line) -> None:
    facts = {"adopted": ["public.a"], "forgotten": ["public.b"], "unresolved": [{"name": "public.c", "reason": "gone"}]}
    line.double.answers["adopt"] = SimpleNamespace(
        adopted=("public.a",), forgotten=("public.b",), unresolved=(("public.c", "gone"),), as_dict=lambda: facts
    )
    printed = line("adopt", "--dry-run", "--forget", "b").out
    assert "public.a  would be adopted" in printed
    assert "public.b  would be forgotten, its table is left alone" in printed
    assert "public.c  cannot be adopted: gone" in printed
    assert json.loads(line("adopt", "--json").out) == facts
    assert line.double.called("adopt") == [
        ((), {"forget": ["b"], "dry_run": True}),
        ((), {"forget": (), "dry_run": False}),
    ]


def test_adopt_says_that_there_is_nothing_to_adopt(line: Line) -> None:
    line.double.answers["adopt"] = SimpleNamespace(adopted=(), forgotten=(), unresolved=())
    assert "nothing to adopt" in line("adopt").out


def test_uninstall_without_a_terminal_wants_yes(line: Line) -> None:
    assert line("uninstall").code == Exit.USAGE
    assert line.double.calls == []
    assert line("uninstall", "--yes").code == Exit.OK
    assert line("uninstall", "--yes", "--cascade").code == Exit.OK
    assert line("uninstall", "--yes", "--forget").code == Exit.OK
    assert line.double.called("uninstall") == [
        ((), {"cascade": False, "forget": False}),
        ((), {"cascade": True, "forget": False}),
        ((), {"cascade": False, "forget": True}),
    ]


def test_doctor_ends_with_1_when_something_is_wrong(line: Line) -> None:
    fine = SimpleNamespace(name="python", ok=True, found="3.11", hint="")
    unknown = SimpleNamespace(name="server", ok=None, found="not asked", hint="")
    wrong = SimpleNamespace(name="java", ok=False, found="none", hint="Install it.")
    line.double.answers["doctor"] = [fine, unknown]
    assert line("doctor", dsn=None).code == Exit.OK
    line.double.answers["doctor"] = [fine, wrong]
    ended = line("doctor")
    assert ended.code == Exit.CHECK_FAILED
    assert "Install it." in ended.out
    assert line.double.called("doctor") == [((None,), {}), (("postgresql://h/d",), {})]


def test_the_version_is_told(line: Line) -> None:
    assert line("--version").out.startswith("millstream ")


def test_what_is_being_done_is_printed_on_stderr_when_asked_for(line: Line) -> None:
    def answer() -> list[object]:
        log.info("looked", rows=3)
        return []

    line.double.answers["status"] = answer
    assert "INFO looked rows=3" in line("--verbose", "list").err
    assert line("list").err == ""
    assert logging.getLogger("millstream").level == logging.NOTSET


def test_events_that_the_error_tells_are_not_shown_and_with_json_none_is(line: Line) -> None:
    def answer() -> list[object]:
        log.warning("half-made", table="totals")
        log.error("refresh failed", code="MS402")
        log.warning("Java says", line="no room")
        raise RefreshFailed.because("totals", "It broke.")

    line.double.answers["status"] = answer
    first, *rest = line("list").err.splitlines()
    assert first.endswith("WARNING half-made table=totals")
    assert rest[:3] == ['error: refresh of "totals" failed [MS402]', "detail: It broke.", "Java said:"]
    assert json.loads(line("list", "--json").err)["error"]["detail"] == "It broke.\nJava said:\nno room"
    assert "ERROR refresh failed code=MS402" in line("--verbose", "list").err


def test_refresh_looks_all_names_up_before_the_first_refresh(line: Line) -> None:
    line.double.answers["history"] = NoSuchStreamTable.named("nosuch")
    assert line("refresh", "totals", "nosuch").code == Exit.FAILED
    assert line.double.called("refresh") == []
