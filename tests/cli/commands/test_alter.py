"""`millstream alter`: only what was given is changed, and something must be."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Line, report

from millstream.cli.exit_codes import Exit


def test_alter_passes_only_the_given_arguments_to_the_api(line: Line) -> None:
    ended = line("alter", "shop.totals", "--status", "suspended", "--schedule", "5m")
    assert ended.out == "shop.totals is altered.\n"
    line(
        "alter", "t", "--refresh-mode", "full", "--cdc-mode", "WAL", "--query", "SELECT 2", "--json"
    )
    line("alter", "t", "--query", "-", stdin="SELECT 3")
    assert line.double.called("alter_stream_table") == [
        (("shop.totals",), {"status": "SUSPENDED", "schedule": "5m"}),
        (("t",), {"refresh_mode": "FULL", "cdc_mode": "wal", "query": "SELECT 2"}),
        (("t",), {"query": "SELECT 3"}),
    ]


def test_alter_shows_what_another_query_has_changed(line: Line) -> None:
    line.double.answers["alter_stream_table"] = report(action="FULL", reason="initial")
    assert line("alter", "t", "--query", "SELECT 2").out.startswith(
        "t is altered. FULL: 1,234 rows read, 1 inserted"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--status", "ERROR"),
        ("--refresh-mode", "never"),
        ("--query", "SELECT 1", "--file", "q.sql"),
    ],
)
def test_alter_needs_something_to_change_that_makes_sense(
    line: Line, arguments: tuple[str, ...]
) -> None:
    assert line("alter", "t", *arguments).code == Exit.USAGE
    assert line.double.called("alter_stream_table") == []
