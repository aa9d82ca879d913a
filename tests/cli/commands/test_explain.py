"""`millstream explain`: the text as the API gives it."""

from __future__ import annotations

import json

from tests.cli.conftest import Line


def test_explain_prints_the_text_as_it_is(line: Line) -> None:
    class Explanation:
        def __str__(self) -> str:
            return "block 1 [not markup]\n  " + "long " * 60

        def as_dict(self) -> dict[str, object]:
            return {"blocks": []}

    line.double.answers["explain"] = Explanation()
    assert line("explain", "totals").out == f"{Explanation()}\n"
    assert json.loads(line("explain", "totals", "--json").out) == {"blocks": []}
