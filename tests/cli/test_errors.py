"""How commands fail: message, detail and hint on stderr, an exit code that means something, no traceback."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import typer

from millstream import errors
from millstream.cli import uninstall
from millstream.cli.exits import MEANINGS, Exit, exit_code

from .conftest import Line

REFUSED = errors.Unsupported.construct(
    "DISTINCT", reason="It is not there yet.", way_round="Use GROUP BY.", position=8, excerpt='At "DISTINCT".'
)


def every_error() -> list[type[errors.MillstreamError]]:
    """All error classes, found from the base."""
    found, waiting = [], [errors.MillstreamError]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return found


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadSetting.of("schedule", "soon", "a duration"), Exit.USAGE),
        (errors.ServerDown.unreachable("postgresql://h/d", "refused"), Exit.SURROUNDINGS),
        (errors.JavaMissing.found("no java"), Exit.SURROUNDINGS),
        (errors.NoRights.to("create schemas", role="r", grant="GRANT ..."), Exit.SURROUNDINGS),
        (errors.WrongVersion.of(130004, 15, 18), Exit.SURROUNDINGS),
        (REFUSED, Exit.REFUSED),
        (errors.Volatile.function("random()", "volatile", "Leave it out."), Exit.REFUSED),
        (errors.BadSource.of("t", "It is temporary.", "Use a table."), Exit.REFUSED),
        (errors.NameTaken.by("totals", "table"), Exit.FAILED),
        (errors.NoSuchStreamTable.named("totals"), Exit.FAILED),
        (errors.Busy.working_on("totals", None), Exit.FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_ends_the_command_with_the_code_of_its_kind(
    line: Line, error: errors.MillstreamError, code: Exit
) -> None:
    line.double.answers["create_stream_table"] = error
    ended = line("create", "totals", "SELECT 1")
    assert ended.code == code
    assert ended.out == ""
    assert ended.err.startswith(f"error: {error.message} [{error.code}]\n")
    assert f"hint: {error.hint}" in ended.err
    assert "Traceback" not in ended.err


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
    assert "error: [bold]x[/nothing] [MS101]\ndetail: ARRAY[1]\n" in line("create", "totals", "SELECT 1").err


def test_with_json_the_error_is_a_document_on_stderr(line: Line) -> None:
    line.double.answers["create_stream_table"] = REFUSED
    ended = line("create", "totals", "SELECT DISTINCT 1", "--json")
    assert ended.code == Exit.REFUSED
    assert ended.out == ""
    error = json.loads(ended.err)["error"]
    assert error["code"] == "MS102"
    assert error["facts"]["position"] == 8


def test_an_error_while_connecting_is_printed_likewise(line: Line) -> None:
    line.double.answers["connect"] = errors.ServerDown.unreachable("postgresql://h/d", "connection refused")
    ended = line("list")
    assert ended.code == Exit.SURROUNDINGS
    assert "cannot connect to PostgreSQL [MS001]" in ended.err


def test_an_error_that_is_not_ours_is_not_swallowed(line: Line) -> None:
    line.double.answers["status"] = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        line("list")


def test_without_a_database_the_way_to_name_one_is_told(line: Line) -> None:
    ended = line("list", dsn=None)
    assert ended.code == Exit.USAGE
    assert "--dsn" in ended.err
    assert "MILLSTREAM_DSN" in ended.err


@pytest.mark.parametrize(
    "arguments", [("list",), ("drop",), ("list", "--nosuch"), ("nosuch",), ("refresh",), ("--nosuch", "list")]
)
def test_with_json_a_wrong_command_line_is_a_document_too(line: Line, arguments: tuple[str, ...]) -> None:
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
    assert (ended.code, ended.out, ended.err) == (130, "", "interrupted: nothing is left half done\n")
    ended = line("list", "--json")
    assert (ended.code, json.loads(ended.err)["error"]["message"]) == (130, "interrupted")


def test_a_refresh_that_ctrl_c_cancels_in_spark_is_interrupted_and_not_failed(line: Line) -> None:
    line.double.answers["refresh"] = errors.RefreshFailed.because("totals", "[SPARK_JOB_CANCELLED] Job 2 cancelled")
    assert line("refresh", "totals").code == 130


def test_ctrl_c_at_a_question_is_no_answer(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_given: object, **_named: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise typer.Abort from None

    monkeypatch.setattr(uninstall, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(typer, "confirm", asked)
    assert line("uninstall").code == 130


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_class_has_an_exit_code_with_a_meaning(kind: type[errors.MillstreamError]) -> None:
    code = exit_code(kind("message"))
    assert code in MEANINGS
    assert code not in (Exit.OK, Exit.CHECK_FAILED)
