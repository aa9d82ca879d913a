"""The double of the planning server infers types, and refuses to guess."""

from __future__ import annotations

import pytest

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.testing.planning_server import PlanningServerDouble, pg_type, table

ORDERS = Scan(
    table("orders", "id int8, amount numeric(12,2), weight float8, note text", key="id"), "o"
)


def type_of(expression: str, **known: str) -> str:
    double = PlanningServerDouble({text: pg_type(type_) for text, type_ in known.items()})
    return str(double.types([Expr.parse(expression)], [ORDERS])[0])


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ('"o"."amount"', "numeric(12,2)"),
        ('"o"."amount" * 2', "numeric"),
        ('"o"."id" + 1', "bigint"),
        ('-"o"."weight"', "double precision"),
        ('"o"."amount" > 3 AND NOT "o"."note" IS NULL', "boolean"),
        ('CASE WHEN true THEN NULL ELSE "o"."note" END', "text"),
        ('coalesce("o"."id", 0)', "bigint"),
        ('CAST("o"."id" AS numeric(5,1))', "numeric(5,1)"),
        ("99999999999", "bigint"),
    ],
)
def test_types_follow_from_columns_constants_and_operators(expression: str, type_: str) -> None:
    assert type_of(expression) == type_


def test_an_unknown_function_has_the_type_that_the_test_sets() -> None:
    with pytest.raises(LookupError, match="known_types"):
        type_of("mystery(1)")
    assert type_of("mystery(1)", **{"mystery(1)": "date"}) == "date"


def test_arithmetic_on_texts_has_no_type() -> None:
    with pytest.raises(LookupError):
        type_of('"o"."note" + 1')


def test_operators_over_nulls_are_null_and_a_coalesce_is_not_guessed() -> None:
    double = PlanningServerDouble()
    assert double.values(["1", "'a'", "(NULL) + CAST(NULL AS integer)"]) == (1, "a", None)
    with pytest.raises(LookupError, match="known_values"):
        double.values(["COALESCE(NULL, 1)"])


def test_the_columns_of_a_key_are_not_null() -> None:
    assert [(column.name, column.not_null) for column in ORDERS.table.columns][:2] == [
        ("id", True),
        ("amount", False),
    ]


@pytest.mark.parametrize(
    "call", ["concat('a', NULL)", "greatest(1, NULL)", "num_nulls(NULL, 1)", "ROW(NULL, 1)"]
)
def test_a_function_that_is_not_known_to_be_strict_is_not_guessed(call: str) -> None:
    """It was NULL if an argument was: concat('a', NULL) is 'a'."""
    with pytest.raises(LookupError, match="known_values"):
        PlanningServerDouble().values([call])
