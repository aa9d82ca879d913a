"""Errors that are bugs, or tables that were changed behind our back."""

from __future__ import annotations

from millstream.errors import InternalError, PlanningFailed, TargetDiffers


def test_a_planning_error_names_the_part_and_the_first_line_of_the_reason() -> None:
    error = PlanningFailed.at("SELECT x", KeyError("x\nand a page of text"))
    assert error.detail == "While planning SELECT x: KeyError: 'x\\nand a page of text'"
    assert (
        PlanningFailed.at("", ValueError("one\ntwo")).detail
        == "While planning the query: ValueError: one"
    )


def test_an_error_without_a_text_shows_its_class() -> None:
    assert (
        PlanningFailed.at("", AssertionError()).detail
        == "While planning the query: AssertionError: "
    )
    assert InternalError.of(RecursionError("deep")).detail == "RecursionError: deep"


def test_the_way_back_is_a_command_that_can_be_copied() -> None:
    assert TargetDiffers.at("Big Totals", "A row is gone.").hint.endswith(
        "refresh --full '\"Big Totals\"'"
    )
    lost = TargetDiffers.without_index("totals", "id", "CREATE UNIQUE INDEX ON totals (id)")
    assert "CREATE UNIQUE INDEX ON totals (id)" in lost.hint
    assert "millstream drop totals" in lost.hint
