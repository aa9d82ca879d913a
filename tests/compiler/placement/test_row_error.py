"""The errors that expressions raise for rows, told without raising them: compared with PostgreSQL's
own, row by row.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import psycopg
import pytest

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.types import PgType
from millstream.compiler.placement.row_error import SEVERAL_ROWS, Unforeseen, row_error
from millstream.compiler.refusal import accepted
from millstream.compiler.server import queries
from millstream.postgres.connection import Connection
from millstream.testing.planning_server import pg_type

EDGES = {
    "s": ("int2", ["-32768", "-1", "0", "1", "32767"]),
    "i": ("int4", ["-2147483648", "-1", "0", "1", "2", "46341", "2147483647"]),
    "j": ("int4", ["-2147483648", "-1", "0", "1", "2", "2147483647"]),
    "b": ("int8", ["-9223372036854775808", "-1", "0", "1", "3037000500", "2147483648", "9223372036854775807"]),
    "n": ("numeric", ["0", "1", "-1.5", "99.995", "32767.5", "2147483647.5", "9223372036854775807.5", "1e40", "1e309",
                      "1e-400", "NaN", "Infinity"]),
    "m": ("numeric(12,2)", ["0", "-1", "999.99", "NaN"]),
    "f": ("float8", ["0", "-1.5", "32767.5", "2147483647.5", "9223372036854775807", "1e300", "NaN", "-Infinity"]),
    "d": ("date", ["-infinity", "infinity", "4713-01-01 BC", "2000-01-01", "5874897-12-31"]),
}  # fmt: skip
INTEGERS, NUMBERS = "sijb", "sijbnm"


class Expressions:
    """Random expressions over the columns.

    No part is over constants alone: what PostgreSQL makes of such a part, it decides while
    planning.
    """

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def number(self, depth: int) -> str:
        if depth == 0 or self.dice.random() < 0.15:
            return f'"t"."{self.dice.choice(NUMBERS)}"'
        return self.dice.choice(
            [
                self._computed,
                self._computed,
                self._computed,
                self._negative,
                self._cast,
                self._case,
                self._coalesce,
            ]
        )(depth - 1)

    def condition(self, depth: int) -> str:
        one, other = self.number(depth), self.number(depth)
        kind = self.dice.choice(["compared", "and", "or", "between", "in"])
        if depth > 0 and kind in ("and", "or"):
            return f"({self.condition(depth - 1)} {kind} {self.condition(depth - 1)})"
        if kind == "between":
            return f"{one} BETWEEN 0 AND 5"
        return (
            f"{one} IN (1, 2)"
            if kind == "in"
            else f"({one} {self.dice.choice(['<', '=', '>='])} {other})"
        )

    def day(self, depth: int) -> str:
        days = self.dice.choice(['"t"."i"', '"t"."s"', "1"])
        return f'("t"."d" {self.dice.choice("+-")} {days})'

    def _computed(self, depth: int) -> str:
        other = (
            self.dice.choice(["1", "2", "(-1)"]) if self.dice.random() < 0.2 else self.number(depth)
        )
        return f"({self.number(depth)} {self.dice.choice('++--**/%')} {other})"

    def _negative(self, depth: int) -> str:
        return self.dice.choice(["(- {})", "abs({})"]).format(self.number(depth))

    def _cast(self, depth: int) -> str:
        if self.dice.random() < 0.2:
            return f'CAST("t"."f" AS {self.dice.choice(["int2", "int4", "int8"])})'
        type_ = self.dice.choice(
            ["int2", "int4", "int8", "numeric", "numeric(5,2)", "numeric(3,0)"]
        )
        return f"CAST({self.number(depth)} AS {type_})"

    def _case(self, depth: int) -> str:
        default = f" ELSE {self.number(depth)}" if self.dice.random() < 0.7 else ""
        return f"CASE WHEN {self.condition(depth)} THEN {self.number(depth)}{default} END"

    def _coalesce(self, depth: int) -> str:
        return f"COALESCE({self.number(depth)}, {self.number(depth)})"


def raised(conn: Connection, expression: str, row: Sequence[str | None]) -> str | None:
    """Return the SQLSTATE of the error that PostgreSQL raises for a row; None if it raises none."""
    try:
        evaluated(conn, expression, row)
    except psycopg.Error as error:
        return error.sqlstate
    return None


def evaluated(conn: Connection, expression: str, row: Sequence[str | None]) -> object:
    columns = ", ".join(f"%s::{type_} AS {name}" for name, (type_, _) in EDGES.items())
    # OFFSET keeps the planner from evaluating with the constants of the row.
    escaped = expression.replace("%", "%%")
    found = conn.execute(
        f"SELECT {escaped} FROM (SELECT {columns} OFFSET 0) AS t".encode(), list(row)
    ).fetchone()
    assert found is not None
    return found[0]


def types(conn: Connection, parts: Sequence[Expr]) -> Sequence[PgType]:
    columns = ", ".join(f"NULL::{type_} AS {name}" for name, (type_, _) in EDGES.items())
    listed = ", ".join(f"{part.sql} AS x{number}" for number, part in enumerate(parts))
    found = queries.columns_of(conn, f"SELECT {listed} FROM (SELECT {columns}) AS t")
    return [column.type for column in accepted(found)]


@pytest.mark.parametrize("seed", range(3))
def test_an_expression_raises_for_the_rows_that_have_an_error(conn: Connection, seed: int) -> None:
    dice = random.Random(f"row errors {seed}")
    made, raising = Expressions(dice), 0
    for _ in range(80):
        text = dice.choice([made.number, made.number, made.condition, made.day])(dice.randint(1, 3))
        try:
            types(conn, [Expr.parse(text)])
            error = row_error(Expr.parse(text), lambda parts: types(conn, parts))
        except psycopg.Error:
            continue
        if isinstance(error, Unforeseen):
            continue
        for _ in range(8):
            row = [dice.choice([None, *values, *values]) for _, values in EDGES.values()]
            told = error and evaluated(conn, error.sql, row)
            assert bool(told) == bool(raised(conn, text, row)), f"{text} of {row}: {told}"
            raising += bool(told)
    assert raising > 30


def told(text: str) -> Expr | Unforeseen | None:
    def of(parts: Sequence[Expr]) -> list[PgType]:
        return [
            pg_type("text" if part.sql == "t.word" else "float8" if "t.f" in part.sql else "int4")
            for part in parts
        ]

    return row_error(Expr.parse(text), of, lambda ref: ref == Ref("t", "held"))


@pytest.mark.parametrize("text", ["t.a", "lower(t.word)", "t.a > 5", "1 + 2", "CAST(t.a AS TEXT)"])
def test_what_never_raises_has_no_error(text: str) -> None:
    assert told(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "CAST(t.word AS INT)",
        "anything(t.a)",
        "t.f * t.f",
        "repeat(t.word, t.a)",
        "t.a BETWEEN 1 AND 2 / t.b",
    ],
)
def test_an_expression_without_a_condition_for_its_error_is_unforeseen(text: str) -> None:
    assert told(text) == Unforeseen()


def test_texts_that_a_type_has_written_are_read_back() -> None:
    assert told("CAST(t.held AS INT)") is None


def test_long_chains_are_unforeseen() -> None:
    assert told(" + ".join(["t.a"] * 30)) == Unforeseen()


def test_a_scalar_subquery_raises_for_more_than_one_row() -> None:
    error = told("(SELECT t.a FROM generate_series(CAST(1 AS BIGINT), t.n))")
    assert isinstance(error, Expr)
    assert SEVERAL_ROWS in error.sql
