"""`millstream adopt`: what was adopted, forgotten, or could not be."""

from __future__ import annotations

import json
from types import SimpleNamespace

from tests.cli.conftest import Line


def test_adopt_says_what_was_adopted_forgotten_or_could_not_be(line: Line) -> None:
    facts = {
        "adopted": ["public.a"],
        "forgotten": ["public.b"],
        "unresolved": [{"name": "public.c", "reason": "gone"}],
    }
    line.double.answers["adopt"] = SimpleNamespace(
        adopted=("public.a",),
        forgotten=("public.b",),
        unresolved=(("public.c", "gone"),),
        as_dict=lambda: facts,
    )
    printed = line("adopt", "--dry-run", "--forget", "b").out
    assert "public.a  would be adopted" in printed
    assert "public.b  would be forgotten, its table is kept" in printed
    assert "public.c  cannot be adopted: gone" in printed
    assert json.loads(line("adopt", "--json").out) == facts
    assert line.double.called("adopt") == [
        ((), {"forget": ["b"], "dry_run": True}),
        ((), {"forget": (), "dry_run": False}),
    ]


def test_adopt_says_that_there_is_nothing_to_adopt(line: Line) -> None:
    line.double.answers["adopt"] = SimpleNamespace(adopted=(), forgotten=(), unresolved=())
    assert "nothing to adopt" in line("adopt").out
