"""The decision about a refresh: each rule, and which of two rules goes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.refresh.decide import Decision, Facts, SourceFacts, decide

CHANGED = SourceFacts("public.orders", changes=10, rows=1000.0)
IDLE = replace(CHANGED, changes=0)
LARGE = SourceFacts("public.orders", changes=6_000, rows=10_000.0)


def decided(
    *sources: SourceFacts, populated: bool = True, mode: str = "AUTO", **facts: bool | str | float
) -> str:
    """Return the printed decision for a stream table over these sources."""
    return str(decide(replace(Facts(populated, mode, sources), **facts)))  # type: ignore[arg-type]  # facts by name


def test_changes_are_applied_differentially() -> None:
    assert decided(IDLE, CHANGED) == "DIFFERENTIAL (CHANGED)"


def test_nothing_is_done_without_changes() -> None:
    assert decided(IDLE, IDLE) == "NO_DATA (NO_CHANGE)"


def test_a_query_over_values_only_has_no_sources_and_no_changes() -> None:
    assert decided() == "NO_DATA (NO_CHANGE)"


def test_a_query_that_reads_the_clock_is_evaluated_without_changes() -> None:
    assert decided(IDLE, clock=True) == "DIFFERENTIAL (CLOCK)"
    assert decided(CHANGED, clock=True) == "DIFFERENTIAL (CHANGED)"


def test_a_table_that_was_never_filled_is_filled_in_full() -> None:
    assert decided(populated=False) == "FULL (INITIAL)"
    assert decided(populated=False, full_requested=True) == "FULL (INITIAL)"


def test_a_table_that_was_filled_under_another_plan_is_reinitialized() -> None:
    assert decided(populated=False, filled_before=True) == "REINITIALIZE (PLANNED_ANEW)"
    reason = decided(populated=False, filled_before=True, recompute_reason="VIEW_REPLACED")
    assert reason == "REINITIALIZE (VIEW_REPLACED)"


def test_a_requested_full_refresh_is_made_even_without_changes() -> None:
    assert decided(IDLE, full_requested=True) == "FULL (REQUESTED)"


def test_a_truncated_source_is_named() -> None:
    truncated = SourceFacts("public.lines", changes=0, rows=0.0, truncated=True)
    assert decided(CHANGED, truncated) == "REINITIALIZE (SOURCE_TRUNCATED: public.lines)"


def test_a_replaced_definition_recomputes_the_table_even_without_changes() -> None:
    assert decided(IDLE, recompute_reason="FUNCTION_REPLACED") == "REINITIALIZE (FUNCTION_REPLACED)"


def test_a_truncated_source_goes_before_a_replaced_definition() -> None:
    truncated = replace(CHANGED, truncated=True)
    assert (
        decide(Facts(True, "AUTO", (truncated,), recompute_reason="VIEW_REPLACED")).reason
        == "SOURCE_TRUNCATED"
    )


def test_a_new_partition_is_the_reason_although_it_looks_like_a_rewrite() -> None:
    repartitioned = replace(CHANGED, gap="PARTITIONS_CHANGED")
    expected = "REINITIALIZE (PARTITIONS_CHANGED: public.orders)"
    assert decided(repartitioned) == expected
    assert decided(repartitioned, recompute_reason="SOURCE_REWRITTEN") == expected


def test_a_rewrite_without_a_new_partition_is_a_rewrite() -> None:
    assert (
        decided(CHANGED, recompute_reason="SOURCE_REWRITTEN") == "REINITIALIZE (SOURCE_REWRITTEN)"
    )


def test_another_reason_goes_before_changed_partitions() -> None:
    repartitioned = replace(CHANGED, gap="PARTITIONS_CHANGED")
    assert decided(repartitioned, recompute_reason="TYPE_CHANGED") == "REINITIALIZE (TYPE_CHANGED)"


def test_the_worst_gap_is_the_reason() -> None:
    repartitioned, lost = replace(CHANGED, gap="PARTITIONS_CHANGED"), replace(LARGE, gap="LOG_LOST")
    assert decided(repartitioned, lost).startswith("REINITIALIZE (LOG_LOST")


def test_a_reason_that_is_in_no_table_cannot_exist() -> None:
    with pytest.raises(ValueError, match="unknown reason code WHIM"):
        Decision("FULL", "WHIM")


def test_mode_full_recomputes_only_if_something_changed() -> None:
    assert decided(CHANGED, mode="FULL") == "FULL (MODE_FULL)"
    assert decided(IDLE, mode="FULL", clock=True) == "FULL (MODE_FULL)"
    assert decided(IDLE, mode="FULL") == "NO_DATA (NO_CHANGE)"


def test_mode_auto_recomputes_if_too_large_a_share_has_changed() -> None:
    assert decided(IDLE, LARGE) == "FULL (CHANGE_RATIO: 60% of public.orders)"


def test_mode_differential_never_recomputes_for_the_size_of_a_change() -> None:
    assert decided(LARGE, mode="DIFFERENTIAL") == "DIFFERENTIAL (CHANGED)"


@pytest.mark.parametrize(
    ("changes", "rows", "ratio", "action"),
    [
        (5_000, 5_000.0, 0.15, "DIFFERENTIAL"),  # few changes, although every row has changed
        (5_001, 5_001.0, 0.15, "FULL"),
        (6_000, 40_000.0, 0.15, "DIFFERENTIAL"),  # exactly the ratio
        (6_001, 40_000.0, 0.15, "FULL"),
        (6_000, 10_000.0, 0.70, "DIFFERENTIAL"),
        (9_999_999, 0.0, 0.15, "DIFFERENTIAL"),  # PostgreSQL has no estimate of the table's size
    ],
)
def test_the_share_counts_above_a_few_thousand_changes(
    changes: int, rows: float, ratio: float, action: str
) -> None:
    source = SourceFacts("public.orders", changes, rows)
    assert decide(Facts(True, "AUTO", (source,), max_change_ratio=ratio)).action == action


def test_a_decision_prints_its_detail_if_it_has_one() -> None:
    assert str(Decision("FULL", "REQUESTED")) == "FULL (REQUESTED)"
    assert (
        str(Decision("REINITIALIZE", "SOURCE_TRUNCATED", "a.b"))
        == "REINITIALIZE (SOURCE_TRUNCATED: a.b)"
    )
