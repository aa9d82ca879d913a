"""Errors of the defining query: the reason, then the place."""

from __future__ import annotations

import pytest

from millstream.errors import (
    BadQuery,
    BadSource,
    Cycle,
    QueryError,
    QueryTooDeep,
    Unsupported,
    Volatile,
)


def test_the_excerpt_follows_the_reason() -> None:
    refused = Unsupported.construct("FOR UPDATE", reason="It locks.", way_round="Omit it.").at(
        9, "At 9."
    )
    assert (refused.detail, refused.hint, refused.position) == ("It locks. At 9.", "Omit it.", 9)
    assert Unsupported.construct("x", reason="Why.", way_round="How.").detail == "Why."


def test_an_error_of_the_server_keeps_its_own_words_and_hint() -> None:
    own = BadQuery.rejected(
        "no such column",
        sqlstate="42703",
        detail="",
        hint="Perhaps y.",
        position=8,
        excerpt="At 8.",
    )
    assert own.hint == "Perhaps y."
    plain = BadQuery.rejected(
        "no such column", sqlstate="42703", detail="", hint="", position=8, excerpt="At 8."
    )
    assert (plain.detail, plain.sqlstate) == ("At 8.", "42703")
    assert "psql" in plain.hint


def test_a_function_is_named_with_its_volatility() -> None:
    error = Volatile.function("random()", "volatile", "Leave it out.")
    assert error.message == "function random() is volatile, not immutable"


@pytest.mark.parametrize(
    "error",
    [
        Unsupported.construct("x", reason="", way_round=""),
        Volatile.function("f", "stable", ""),
        BadSource.of("t", "", ""),
        Cycle.along("t", "t > v > t"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_refusal_has_a_position_even_if_it_is_unknown(error: QueryError) -> None:
    assert error.position is None


def test_only_spark_can_be_given_a_larger_stack() -> None:
    assert "-Xss512m" in QueryTooDeep.evaluated().hint
    assert "-Xss" not in QueryTooDeep.planned().hint
