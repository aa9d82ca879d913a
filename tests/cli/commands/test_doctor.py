"""`millstream doctor`: its exit code tells whether something is wrong."""

from __future__ import annotations

from types import SimpleNamespace

from tests.cli.conftest import Line

from millstream.cli.exit_codes import Exit


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
