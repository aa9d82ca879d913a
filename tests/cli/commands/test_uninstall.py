"""`millstream uninstall`: it asks, or wants `--yes`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import typer
from tests.cli.conftest import Line

from millstream.cli.commands import uninstall
from millstream.cli.exit_codes import Exit


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


def test_ctrl_c_at_a_question_is_no_answer(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_given: object, **_named: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise typer.Abort from None

    monkeypatch.setattr(
        uninstall, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    )
    monkeypatch.setattr(typer, "confirm", asked)
    assert line("uninstall").code == 130
