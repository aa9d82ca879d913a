"""The capture function's text, as users find it in their database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.capture.trigger.function import CapturedImages, Level, Watch, body, function_name
from millstream.catalog.sources import CapturedColumn

GOLDEN = Path(__file__).parent / "golden"

COLUMNS = (
    CapturedColumn(1, "id", 23, "integer"),
    CapturedColumn(4, "Total", 1700, "numeric", 786438),
)
MADE_OF = (CapturedColumn(3, "price", 1700, "numeric", 786438),)


@pytest.mark.parametrize("level", ["STATEMENT", "ROW"])
def test_the_text_is_as_it_was(level: Level) -> None:
    expressions = (None, "(price * (2)::numeric)") if level == "ROW" else (None, None)
    table = 43 if level == "ROW" else 42
    printed = body(
        CapturedImages(42, level, COLUMNS, expressions), Watch(table, (*COLUMNS, *MADE_OF))
    ).as_string()
    golden = GOLDEN / f"capture_by_{level.lower()}.sql"
    if os.environ.get("MILLSTREAM_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(printed, encoding="utf-8")
    assert printed == golden.read_text(encoding="utf-8")


def test_images_want_one_expression_for_each_column() -> None:
    with pytest.raises(ValueError, match="one expression"):
        CapturedImages(42, "STATEMENT", COLUMNS, ())


def test_each_table_of_a_source_has_its_own_function() -> None:
    assert function_name(42, 42) == "capture_42"
    assert function_name(42, 43) == "capture_42_43"
