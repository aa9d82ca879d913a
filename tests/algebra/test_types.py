"""Types say what the server said of them: domains, user-defined types, bpchar with and without a
length.
"""

from __future__ import annotations

import pytest

from millstream.algebra.types import Column, PgType

DOMAIN = PgType(9001, "shop.price", "numeric", kind="base", underlying="numeric(12,2)")


def test_a_type_needs_its_names() -> None:
    with pytest.raises(ValueError, match="name"):
        PgType(1, "", "int4")


def test_a_domain_is_user_defined_and_unwraps_to_the_type_underneath() -> None:
    assert DOMAIN.is_domain
    assert DOMAIN.is_user_defined
    assert DOMAIN.unwrapped().name == "numeric(12,2)"
    assert not DOMAIN.unwrapped().is_domain


def test_a_built_in_type_unwraps_to_itself() -> None:
    integer = PgType(23, "integer", "int4")
    assert integer.unwrapped() is integer
    assert not integer.is_user_defined


def test_only_bpchar_without_a_length_keeps_trailing_blanks() -> None:
    assert PgType(1042, "bpchar", "bpchar").keeps_blanks
    assert not PgType(1042, "character(5)", "bpchar").keeps_blanks
    assert not PgType(25, "text", "text").keeps_blanks
    assert PgType(9002, "shop.code", "bpchar", underlying="bpchar").keeps_blanks


def test_a_column_prints_as_it_is_declared() -> None:
    assert str(Column("price", DOMAIN, not_null=True)) == "price shop.price NOT NULL"
