"""How a command fails: message, detail and hint on stderr, no traceback; with `--json` a document."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Line

from millstream import errors
from millstream.cli.exit_codes import Exit

REFUSED = errors.Unsupported.construct(
    "DISTINCT", reason="It is not there yet.", way_round="Use GROUP BY."
)
REFUSED.at(8, 'At "DISTINCT".')


def test_detail_and_hint_are_printed_each_on_its_line(line: Line) -> None:
    line.double.answers["create_stream_table"] = REFUSED
    assert line("create", "totals", "SELECT DISTINCT 1").err.splitlines() == [
        "error: DISTINCT is not supported in a stream table [MS102]",
        'detail: It is not there yet. At "DISTINCT".',
        "hint: Use GROUP BY.",
    ]


def test_brackets_in_an_error_are_text_and_no_markup(line: Line) -> None:
    line.double.answers["create_stream_table"] = errors.BadQuery.rejected(
        "[bold]x[/nothing]", sqlstate="42601", detail="ARRAY[1]", hint="", position=None, excerpt=""
    )
    assert (
        "error: [bold]x[/nothing] [MS101]\ndetail: ARRAY[1]\n"
        in line("create", "totals", "SELECT 1").err
    )


def test_with_json_the_error_is_a_document_on_stderr(line: Line) -> None:
    line.double.answers["create_stream_table"] = REFUSED
    ended = line("create", "totals", "SELECT DISTINCT 1", "--json")
    assert ended.code == Exit.REFUSED
    assert ended.out == ""
    error = json.loads(ended.err)["error"]
    assert error["code"] == "MS102"
    assert error["facts"]["position"] == 8


def test_an_error_while_connecting_is_printed_likewise(line: Line) -> None:
    line.double.answers["connect"] = errors.ServerDown.unreachable(
        "postgresql://h/d", "connection refused"
    )
    ended = line("list")
    assert ended.code == Exit.SURROUNDINGS
    assert "cannot connect to PostgreSQL [MS001]" in ended.err


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug"), KeyError("x"), RecursionError("deep"), OSError("disk")]
)
def test_an_unexpected_error_is_printed_without_a_traceback(line: Line, error: Exception) -> None:
    """VALUES as the first item of FROM was a KeyError: a traceback, and no JSON with --json."""
    line.double.answers["status"] = error
    ended = line("list")
    assert (ended.code, ended.out) == (Exit.FAILED, "")
    assert "error: unexpected error in Millstream [MS903]" in ended.err
    assert f"detail: {type(error).__name__}: " in ended.err
    assert "Traceback" not in ended.err
    document = json.loads(line("list", "--json").err)["error"]
    assert (document["code"], document["detail"].partition(":")[0]) == (
        "MS903",
        type(error).__name__,
    )
    assert "Traceback" in line("--verbose", "list").err


@pytest.mark.parametrize(
    "arguments",
    [("list",), ("drop",), ("list", "--nosuch"), ("nosuch",), ("refresh",), ("--nosuch", "list")],
)
def test_with_json_a_wrong_command_line_is_a_document_too(
    line: Line, arguments: tuple[str, ...]
) -> None:
    drawn, ended = line(*arguments, dsn=None), line(*arguments, "--json", dsn=None)
    assert ended.code == drawn.code == Exit.USAGE
    error = json.loads(ended.err)["error"]
    assert error["code"] == "MS005"
    assert error["message"]
    assert error["hint"].startswith("See: ")
    assert "Usage:" in drawn.err


def test_ctrl_c_ends_any_command_with_one_line(line: Line) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    line.double.answers["status"] = interrupted
    ended = line("list")
    assert (ended.code, ended.out, ended.err) == (
        130,
        "",
        "interrupted: nothing was left half done\n",
    )
    ended = line("list", "--json")
    assert (ended.code, json.loads(ended.err)["error"]["message"]) == (130, "interrupted")


def test_a_refresh_that_somebody_else_has_cancelled_is_no_interrupt(line: Line) -> None:
    line.double.answers["refresh"] = errors.Cancelled.by(
        "totals", "canceling statement due to user request"
    )
    ended = line("refresh", "totals")
    assert (ended.code, ended.err.splitlines()[0]) == (
        Exit.FAILED,
        'error: refresh of "totals" was cancelled [MS407]',
    )
