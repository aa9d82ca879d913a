"""`millstream refresh`: names or all of them, and what is printed of each refresh."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import AT, Line, report

from millstream.catalog.upstreams import OlderUpstream
from millstream.cli.exit_codes import Exit
from millstream.errors import NoSuchStreamTable


def test_refresh_of_several_names_refreshes_each(line: Line) -> None:
    line.double.answers["refresh"] = lambda name: report(name=name)
    out = line("refresh", "a", "b", "--full").out
    assert line.double.called("refresh") == [(("a",), {"full": True}), (("b",), {"full": True})]
    assert "1,234" in out
    assert "87 ms" in out


def test_refresh_shows_what_holds_a_stream_table_back(line: Line) -> None:
    behind = OlderUpstream(7, "public.base", "SUSPENDED", AT, "it failed [MS402]\nDETAIL: much")
    line.double.answers["refresh"] = lambda name: report(name=name, held_back_by=(behind,))
    ended = line("refresh", "a")
    assert "a has older data, because public.base is SUSPENDED: it failed [MS402]" in ended.err
    assert "public.base" not in ended.out


def test_refresh_of_all_is_one_call(line: Line) -> None:
    line.double.answers["refresh_all"] = [report(), report(name="other")]
    reports = json.loads(line("refresh", "--all", "--json").out)
    assert [one["name"] for one in reports] == ["totals", "other"]
    assert reports[0]["frontier"] == "10:20:12"


@pytest.mark.parametrize(
    "arguments",
    [
        ("refresh",),
        ("refresh", "a", "--all"),
        ("refresh", "--all", "--full"),
        ("verify",),
        ("verify", "a", "--all"),
    ],
)
def test_names_or_all_but_not_both_and_not_neither(line: Line, arguments: tuple[str, ...]) -> None:
    assert line(*arguments).code == Exit.USAGE
    assert line.double.calls == []


def test_refresh_looks_all_names_up_before_the_first_refresh(line: Line) -> None:
    line.double.answers["history"] = NoSuchStreamTable.named("nosuch")
    assert line("refresh", "totals", "nosuch").code == Exit.FAILED
    assert line.double.called("refresh") == []
