"""The choices of the planner, as `explain` prints them: choices.txt holds queries, each with what
was chosen and why.

To write the choices anew, and then read the difference:

    MILLSTREAM_TEST_REWRITE=1 python -m pytest tests/compiler/blocks/test_choices.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.compiler.conftest import ONE_OF_EACH, planning_database

from millstream.algebra.choice import Choice
from millstream.bundled.server import Server
from millstream.compiler.blocks.choices import printed_choices
from millstream.compiler.server.plan_query import plan_query

GOLDEN = Path(__file__).parent / "choices.txt"
BLOCKS = Path(__file__).parents[3] / "src" / "millstream" / "compiler" / "blocks"


def test_each_choice_is_printed_with_its_reason(server: Server) -> None:
    queries = [case.split("\n    ")[0].strip() for case in GOLDEN.read_text().split("\n\n")]
    with planning_database(server, "plan_choices", ONE_OF_EACH) as conn:
        found = [(query, printed_choices(plan_query(conn, query).blocks)) for query in queries]
    text = (
        "\n\n".join("\n    ".join([query, *choices.splitlines()]) for query, choices in found)
        + "\n"
    )
    if os.environ.get("MILLSTREAM_TEST_REWRITE"):
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text


def test_a_choice_says_what_and_why() -> None:
    with pytest.raises(ValueError, match="what and why"):
        Choice("stores rows", "")


def test_no_strategy_is_tried_under_except() -> None:
    """The planner chooses before it acts: a refusal is a value there, and blocks are added to a
    draft, never undone.
    """
    tried = re.compile(r"^\s*except\b.*|\bsuppress\(.*|rollback|undo", re.MULTILINE)
    found = {file.name: tried.findall(file.read_text()) for file in sorted(BLOCKS.rglob("*.py"))}
    assert len(found) > 10
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_no_refusal_is_caught_while_expressions_are_placed_and_blocks_lowered() -> None:
    caught = re.compile(
        r"^\s*except\b.*(?:Unsupported|Unforeseen|BadQuery|QueryError|MillstreamError).*",
        re.MULTILINE,
    )
    files = [
        file
        for room in ("placement", "lowering")
        for file in sorted((BLOCKS.parent / room).rglob("*.py"))
    ]
    assert len(files) > 20
    assert {
        file.name: caught.findall(file.read_text())
        for file in files
        if caught.search(file.read_text())
    } == {}
