"""Errors about a stream table: each hint is a command that can be copied, whatever the name."""

from __future__ import annotations

from millstream.errors import (
    NotAdopted,
    NotFilled,
    StillUsed,
    TargetAltered,
    TargetMoved,
    TriggerInterferes,
)


def test_names_in_commands_are_quoted_for_the_shell() -> None:
    assert StillUsed.by("Big", ["view v"]).hint.endswith("millstream drop --cascade '\"Big\"'")
    assert TargetMoved.renamed("a b").hint.endswith("millstream drop --forget '\"a b\"'")
    assert "millstream drop totals." in TargetMoved.dropped("totals").hint


def test_a_qualified_name_is_quoted_part_by_part() -> None:
    assert NotFilled.upstream("totals", "shop.base").hint.endswith("millstream refresh shop.base")
    assert NotFilled.upstream("totals", "shop.Base").hint.endswith(
        'millstream refresh \'"shop"."Base"\''
    )


def test_a_table_without_a_mark_gets_the_statements_that_mark_it() -> None:
    marks = ["COMMENT ON INDEX a IS 'x'", "COMMENT ON INDEX b IS 'x'"]
    assert "; ".join(marks) in TargetMoved.unmarked("totals", marks).hint
    assert "CREATE UNIQUE INDEX on its key first" in TargetMoved.unmarked("totals", []).hint


def test_each_trigger_that_interferes_is_dropped_by_a_statement_of_its_own() -> None:
    hint = TriggerInterferes.by("totals", "shop.totals", "a, b", "A row is changed.").hint
    assert hint.endswith("DROP TRIGGER a ON shop.totals; DROP TRIGGER b ON shop.totals")


def test_the_statement_in_the_hint_reverts_the_alteration() -> None:
    error = TargetAltered.has("totals", "It has a rule.", "DROP RULE r ON totals")
    assert (error.detail, error.hint) == ("It has a rule.", "Undo it with: DROP RULE r ON totals")


def test_every_stream_table_that_cannot_be_adopted_is_listed_with_its_reason() -> None:
    error = NotAdopted.listing([("a", "no table"), ("b", "another key")])
    assert error.detail == "a: no table. b: another key. Nothing was changed."
    assert error.hint.endswith("millstream adopt --forget a --forget b")


def test_a_stream_table_below_that_is_empty_is_no_failure() -> None:
    assert (NotFilled.retryable, NotFilled.skips) == (True, True)
