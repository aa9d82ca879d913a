"""`millstream create --dry-run`: what it asks of the API, what it prints, how it ends."""

from __future__ import annotations

import json

from millstream.cli.exit_codes import Exit
from millstream.errors import Volatile

from .conftest import Line, validation


def test_a_dry_run_creates_nothing_and_shows_the_plan(line: Line) -> None:
    line.double.answers["validate"] = validation(notices=("It reads the current time.",))
    options = ("--owner", "me", "--cdc-mode", "wal", "--schedule", "5s")
    ended = line("create", "t", "SELECT 1", "--dry-run", *options)
    given = {"owner": "me", "cdc_mode": "wal", "schedule": "5s"}
    pinned = {"settings": None, "assume_immutable": None}
    assert line.double.called("validate") == [(("SELECT 1",), {**given, **pinned})]
    assert line.double.called("create_stream_table") == []
    shown = (
        "region",
        "key (region)",
        "public.orders",
        "the state of each group",
        "Block result",
        "the current time",
    )
    assert [word for word in shown if word not in ended.out] == []
    assert ended.code == Exit.OK


def test_a_dry_run_of_a_refused_query_ends_as_create_would(line: Line) -> None:
    refusal = Volatile.function("random()", "volatile", "Leave it out.").at(8)
    line.double.answers["validate"] = validation(ok=False, refusal=refusal)
    ended = line("create", "t", "SELECT random()", "--dry-run")
    assert (ended.code, ended.out) == (Exit.REFUSED, "")
    assert "function random() is volatile, not immutable [MS103]" in ended.err


def test_a_dry_run_as_json_is_one_document_whatever_the_outcome(line: Line) -> None:
    line.double.answers["validate"] = validation(
        ok=False, refusal=Volatile.function("f", "volatile", "")
    )
    ended = line("create", "t", "SELECT f()", "--dry-run", "--json")
    assert (ended.code, ended.err) == (Exit.REFUSED, "")
    assert json.loads(ended.out)["ok"] is False
