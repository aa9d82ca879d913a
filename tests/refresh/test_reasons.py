"""The table of reason codes is that of the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import millstream
from millstream.capture.buffer import slices
from millstream.catalog.definitions import definition_digests
from millstream.refresh.reasons import REASONS

SOURCES = Path(millstream.__file__).parent


def texts(node: ast.expr) -> Iterator[str]:
    """The string constants in an expression."""
    return (
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    )


def decided() -> set[str]:
    """The codes that decisions and jobs are made with."""
    found = set[str]()
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            if (
                isinstance(node.func, ast.Name)
                and node.func.id == "Decision"
                and len(node.args) > 1
            ):
                found |= set(texts(node.args[1]))
            for keyword in node.keywords:
                if keyword.arg == "recompute_reason":
                    found |= set(texts(keyword.value))
    # No reason at all.
    return found - {""}


def test_the_table_has_every_reason_code_and_no_other() -> None:
    assert (
        decided() | slices.GAPS.keys() | set(definition_digests.REASONS.values()) == REASONS.keys()
    )


def test_no_origin_of_a_mark_has_two_meanings() -> None:
    origins = "".join(slices.GAPS.values())
    assert len(set(origins)) == len(origins)
