"""Numbers in postfix notation, compared by Spark and by Python's decimals."""

from __future__ import annotations

import random
from decimal import Decimal, InvalidOperation, getcontext, localcontext

import pytest
from pyspark.sql import SparkSession

from millstream.spark.numbers import COMPARE, CREATE_COMPARE

VALUES = (
    "NaN", "Infinity", "-Infinity", "0", "1", "-1", "1" + "0" * 200, "-1" + "0" * 200, "0." + "0" * 99 + "1",
    "-0." + "0" * 99 + "1", "123456789012345678901234567890.123456789", "999999999999999999.999999999999999999",
    "1000000000", "-999999999", "0.1", "-2.5", "0.000000001",
)  # fmt: skip


def written(dice: random.Random, depth: int) -> list[str]:
    if depth == 0 or dice.random() < 0.3:
        return [dice.choice(VALUES)]
    return [*written(dice, depth - 1), *written(dice, depth - 1), dice.choice("+-*")]


def computed(postfix: list[str]) -> Decimal:
    stack = list[Decimal]()
    for token in postfix:
        if token not in ("+", "-", "*"):
            stack.append(Decimal(token))
            continue
        right, left = stack.pop(), stack.pop()
        try:
            stack.append(
                left + right if token == "+" else left - right if token == "-" else left * right
            )
        except InvalidOperation:
            stack.append(Decimal("NaN"))
    return stack.pop()


def compared(one: list[str], other: list[str]) -> int:
    """As PostgreSQL orders numerics: NaN equals itself and is greater than all others."""
    left, right = (
        (value.is_nan(), Decimal(0) if value.is_nan() else value)
        for value in map(computed, (one, other))
    )
    return (left > right) - (left < right)


@pytest.mark.spark
def test_random_numbers_are_compared_as_python_compares_them(spark: SparkSession) -> None:
    dice = random.Random(1)
    with localcontext() as context:
        context.prec = 3000
        assert getcontext().prec == 3000
        rows = []
        for _ in range(300):
            one = written(dice, 3)
            other = list(one) if dice.random() < 0.2 else written(dice, 1)
            rows.append((one, other, compared(one, other)))
    spark.sql(CREATE_COMPARE)
    frame = spark.createDataFrame(rows, "one array<string>, other array<string>, wanted int")
    assert {wanted for _, _, wanted in rows} == {-1, 0, 1}
    assert frame.where(f"{COMPARE}(one, other) IS DISTINCT FROM wanted").collect() == []
