"""Workarounds of refusals: which one a refused call, query or key gets.

That they work is tested in test_hints.py.
"""

from __future__ import annotations

import pytest

from millstream.algebra.types import PgType
from millstream.compiler.workaround import for_function, for_group_key, for_rejected
from millstream.testing.planning_server import pg_type

VIEW = "call the function in a view"


@pytest.mark.parametrize(
    ("signature", "volatility", "hint"),
    [
        ('pg_typeof("any")', "stable", VIEW),
        ("clock_timestamp()", "volatile", "Use now()"),
        ("random()", "volatile", VIEW),
    ],
)
def test_a_function_of_the_server_is_replaced_or_moved_to_a_view(
    signature: str, volatility: str, hint: str
) -> None:
    assert hint in for_function(signature, volatility, built_in=True)


def test_a_users_function_of_the_same_name_can_be_declared_immutable() -> None:
    hint = for_function("date_trunc(text)", "stable", built_in=False)
    assert hint.endswith("ALTER FUNCTION date_trunc(text) IMMUTABLE.")


def test_only_known_complaints_of_the_server_have_a_workaround() -> None:
    assert "with AS" in for_rejected('column "a" specified more than once')
    assert for_rejected("division by zero") == ""


@pytest.mark.parametrize(
    ("type_", "hint"),
    [
        (PgType(1, "span", "span", "range"), "lower(x)"),
        (PgType(2, "address", "address", "composite"), "(x).a"),
        (pg_type("jsonb"), "x::text"),
        (PgType(600, "point", "point"), "in a view"),
    ],
)
def test_the_workaround_of_a_group_key_depends_on_its_type(type_: PgType, hint: str) -> None:
    assert hint in for_group_key(type_)
