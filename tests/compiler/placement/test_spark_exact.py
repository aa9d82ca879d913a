"""What Spark computes across tables: each expression is placed, or its refusal is returned."""

from __future__ import annotations

import psycopg
import pytest

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.client import Millstream
from millstream.compiler.blocks.region import BranchNames, Region
from millstream.compiler.placement.place import Placer
from millstream.compiler.placement.placement import Placement
from millstream.errors import Unsupported
from millstream.testing import oracle
from millstream.testing.planning_server import PlanningServerDouble, table

T = Scan(table("t", "id int4, m numeric(9,2), f float8, word text", key="id"), "t")
U = Scan(table("u", "id int4, x int4, word text", key="id"), "u")


def place(text: str) -> Placement | Unsupported:
    expression = Expr.parse(text)
    placer = Placer(BranchNames(Region((T, U))), [expression], PlanningServerDouble())
    return placer.place(expression, "carry")


@pytest.mark.parametrize(
    ("text", "spark"),
    [
        ('"t"."id" > "u"."x"', '"i0"."c0" > "i1"."c0"'),
        ('"t"."id" > 1 AND "t"."id" = "u"."x"', '("i0"."c0") AND ("i0"."c1" = "i1"."c0")'),
        ('"t"."id" + "u"."x"', '("i0"."c0") + ("i1"."c0")'),
        ('- ("t"."id" * "u"."x")', '-(("i0"."c0") * ("i1"."c0"))'),
        ('COALESCE("t"."id", "u"."x")', 'COALESCE("i0"."c0", "i1"."c0")'),
        (
            'CASE WHEN "t"."id" > "u"."x" THEN "u"."x" END',
            'CASE WHEN "i0"."c0" > "i1"."c0" THEN "i1"."c0" END',
        ),
    ],
)
def test_spark_computes_it(text: str, spark: str) -> None:
    placed = place(text)
    assert isinstance(placed, Placement)
    assert placed.expr.sql == spark


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('starts_with("t"."word", "u"."word")', "Spark does not compute it exactly as PostgreSQL does."),
        ('"t"."word" < "u"."word"', "Its order or equality is not the same in Spark."),
        ('"t"."f" + "u"."x"', "Floating-point arithmetic overflows silently in Spark."),
        ('CASE "t"."id" WHEN "u"."x" THEN 1 END', "Write it as CASE WHEN x = 1 THEN ..."),
        ('COALESCE("t"."word", "u"."x"::text) = "t"."word" AND NOT starts_with("t"."word", "u"."word")', "Spark"),
        ('"t"."m" + "u"."x"', "Spark has no number for some values"),
        ('COALESCE(- ("t"."f" * "u"."x"), 1)', "Floating-point arithmetic"),
        ('CASE WHEN "t"."word" < "u"."word" THEN 1 END', "Its order or equality"),
    ],
)  # fmt: skip
def test_an_operator_that_spark_computes_otherwise_is_refused_at_any_depth(
    text: str, reason: str
) -> None:
    refused = place(text)
    assert isinstance(refused, Unsupported)
    assert reason in refused.detail


COMPARED = {
    "an average of more digits": "SELECT t.id FROM t WHERE t.x > (SELECT avg(CASE WHEN u.id = 3 THEN 1 ELSE 0 END) "
    "FROM u WHERE u.g = t.g)",
    "of any kind": "SELECT t.id, u.id AS other FROM t JOIN u ON u.g = t.g AND t.x <= u.x",
    "with integers": "SELECT t.id, u.id AS other FROM t JOIN u ON u.g = t.g WHERE t.id < u.x OR t.x <> u.id",
    "padded": "SELECT t.id, u.id AS other FROM t LEFT JOIN u ON u.g = t.g AND t.x >= u.x",
}


@pytest.mark.spark
@pytest.mark.parametrize("what", COMPARED)
def test_numbers_of_any_digits_are_compared_across_tables(
    ms: Millstream, writer: psycopg.Connection, what: str
) -> None:
    """Spark's decimals hold neither NaN and infinities nor so many digits."""
    for name in "tu":
        writer.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, g int, x numeric)".encode())
        writer.execute(f"CREATE INDEX ON {name} (g)".encode())
    values = [
        "0", "1", "-1", "0.05", "0.5", "0.50", "-0.5", "-0.55", "12", "12.5", "-12", "-12.5", "99", "100", "NULL",
        "0.000000000000000000000001", "0.000000000000000000000002", "-0.000000000000000000000001", "'NaN'",
        "123456789012345678901234567890.5", "-123456789012345678901234567890", "'Infinity'", "'-Infinity'",
    ]  # fmt: skip
    for n, value in enumerate(values):
        writer.execute(f"INSERT INTO t VALUES ({n}, {n % 2}, {value})".encode())
        writer.execute(f"INSERT INTO u VALUES ({n}, {n % 2}, {value})".encode())
    ms.create_stream_table("st", COMPARED[what], refresh_mode="DIFFERENTIAL")
    oracle.check(ms.app.conn, COMPARED[what], "st")
    writer.execute(
        "UPDATE t SET g = 1 - g WHERE id % 3 = 0; DELETE FROM u WHERE id = 4; UPDATE u SET x = x / 7"
    )
    assert ms.refresh("st").action == "DIFFERENTIAL"
    oracle.check(ms.app.conn, COMPARED[what], "st")
