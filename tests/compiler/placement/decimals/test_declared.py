"""Digits of numeric expressions, from the declarations of their columns."""

from __future__ import annotations

import psycopg
import pytest

from millstream.algebra.expr import Expr
from millstream.client import Millstream
from millstream.compiler.placement.decimals.declared import Digits, digits_of, digits_of_type
from millstream.testing import oracle
from millstream.testing.planning_server import pg_type

COLUMNS = {"price": Digits(10, 2), "rate": Digits(3, 4), "quantity": Digits(10, 0)}


def digits(text: str) -> Digits | None:
    return digits_of(Expr.parse(text), lambda ref: COLUMNS.get(ref.column))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("price + rate", Digits(11, 4)),
        ("-(price * rate)", Digits(13, 6)),
        ("price * 1.5", Digits(11, 3)),
        ("CAST(price AS numeric)", Digits(10, 2)),
        ("CAST(free AS numeric(5, 1))", Digits(4, 1)),
        ("CAST(free AS numeric(3, -2)) * quantity", Digits(15, 0)),
        ("CAST(free AS numeric(4))", Digits(4, 0)),
        ("coalesce(price, NULL)", Digits(10, 2)),
        ("CASE WHEN true THEN price ELSE price + 1.25 END", Digits(11, 2)),
    ],
)
def test_digits_follow_the_rules_of_postgresql(text: str, result: Digits) -> None:
    assert digits(text) == result


@pytest.mark.parametrize(
    "text", ["price / 2", "price + free", "coalesce(price, rate)", "round(price)", "1e5"]
)
def test_where_digits_differ_by_row_they_are_not_known(text: str) -> None:
    assert digits(text) is None


def test_types_declare_digits_or_do_not() -> None:
    assert digits_of_type(pg_type("numeric(12,2)")) == Digits(10, 2)
    assert digits_of_type(pg_type("int2")) == Digits(5, 0)
    assert digits_of_type(pg_type("numeric")) is None
    assert digits_of_type(pg_type("float8")) is None


@pytest.mark.spark
def test_numbers_without_their_last_digits_are_added(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """A numeric(3,-2) holds 99900; Spark has no negative scale."""
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, g int, x numeric(3,-2))")
    writer.execute("INSERT INTO t SELECT n, n % 2, n * 150 FROM generate_series(1, 9) AS n")
    query = "SELECT g, sum(x) AS s, avg(x) AS a, min(x) AS l, sum(x * 2) AS d FROM t GROUP BY g"
    ms.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    oracle.check(ms.app.conn, query, "st")
    writer.execute(
        "UPDATE t SET x = 99900 WHERE id = 3; DELETE FROM t WHERE id IN (2, 5); INSERT INTO t VALUES (10, 3, 49)"
    )
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, query, "st")
