"""Options that several commands share."""

from __future__ import annotations

from tests.cli.conftest import Line

from millstream.cli.exit_codes import Exit


def test_without_a_database_the_hint_says_how_to_name_one(line: Line) -> None:
    ended = line("list", dsn=None)
    assert ended.code == Exit.USAGE
    assert "--dsn" in ended.err
    assert "MILLSTREAM_DSN" in ended.err
