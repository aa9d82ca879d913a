"""Exit codes: an error ends a command with the code of its kind."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Line

from millstream import errors
from millstream.cli.exit_codes import MEANINGS, Exit, exit_code

REFUSED = errors.Unsupported.construct(
    "DISTINCT", reason="It is not there yet.", way_round="Use GROUP BY."
)
REFUSED.at(8, 'At "DISTINCT".')


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


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_class_has_an_exit_code_with_a_meaning(
    kind: type[errors.MillstreamError],
) -> None:
    code = exit_code(kind("message"))
    assert code in MEANINGS
    assert code not in (Exit.OK, Exit.CHECK_FAILED)
