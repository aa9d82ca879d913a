"""Arithmetic of numerics across tables: what Spark is told, and what comes of NaN, infinities,
1e200 and 1e-100.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.service.conftest import exact_through

import millstream
from millstream import Millstream
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.compiler.blocks.region import BranchNames, Region
from millstream.compiler.placement.decimals.attempt import EXACT, Attempts
from millstream.compiler.placement.place import Placer
from millstream.compiler.refusal import accepted
from millstream.refresh.evaluate import Evaluation
from millstream.spark import engine
from millstream.spark.numbers import COMPARE, CREATE_COMPARE
from millstream.testing.planning_server import PlanningServerDouble, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.spark.engine import Evaluated, Rows

TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, k int, n numeric, p numeric(12,2), i int, w numeric(60,2),
        b numeric(30,5));
    CREATE TABLE u (id int PRIMARY KEY, k int, m numeric, q numeric(8,4), j int);
    CREATE TABLE v (id int PRIMARY KEY, k int, n numeric);
    CREATE INDEX ON t (k);
    CREATE INDEX ON u (k);
    CREATE INDEX ON v (k);
    INSERT INTO t VALUES (1, 1, 'NaN', 1.50, 1, 1e57), (2, 1, 'Infinity', 2, 2, -1e57), (3, 1, 1e200, 'NaN', 3, 2),
        (4, 2, 1e-100, 0, 4, 'NaN'), (5, 2, 2.5, 7, 5, 3), (6, 3, -1.50, -7, 6, 4), (7, 3, NULL, NULL, 7, NULL),
        (8, 4, '-Infinity', 1, 8, 5);
    INSERT INTO u VALUES (1, 1, '-Infinity', 1.5, 1), (2, 1, 0, 2, 2), (3, 1, -1e200, 'NaN', 3), (4, 2, 1e-100, 0, 4),
        (5, 2, 2.5, 7, 5), (6, 3, 6.50, -7, 6), (7, 3, 1, NULL, 7), (8, 5, 9e19, 1, 8);
    UPDATE t SET b = CASE WHEN id % 2 = 0 THEN 1e24 ELSE 1.5 END;
    INSERT INTO v VALUES (1, 1, 'NaN'), (2, 2, 5.0), (3, 3, 5), (4, 1, 0);
"""
CHANGES = (
    "UPDATE t SET n = 'NaN', p = 'NaN' WHERE id = 5; UPDATE u SET m = 'Infinity' WHERE id = 6;"
    "UPDATE t SET n = 3 WHERE id IN (1, 2); UPDATE u SET m = 1e-100 WHERE id = 2; DELETE FROM u WHERE id = 3",
    "INSERT INTO u VALUES (9, 4, 'Infinity', 'NaN', 4), (10, 3, -1e-50, 1, 4);"
    "UPDATE t SET n = 9e19 WHERE id = 4; UPDATE u SET m = 9e19 WHERE id = 4",
    "DELETE FROM t WHERE n > 1e10; UPDATE v SET n = 18e19",
)
JOINED = "SELECT t.id, u.id AS other FROM t JOIN u ON t.k = u.k WHERE"
BY_K = "FROM t JOIN u ON t.k = u.k GROUP BY t.k"
QUERIES = {
    "a sum of two": f"{JOINED} t.n + u.m > 4",
    "a product": f"{JOINED} t.p * u.q = 3",
    "beside integers": f"{JOINED} t.p - u.m <> u.j + t.i",
    "of more digits than are declared anywhere": f"{JOINED} t.w - u.q > 1",
    "chosen": f"{JOINED} CASE WHEN t.n > u.m THEN t.n - u.m ELSE u.m END > 2",
    "of parts with more digits than Spark's": f"{JOINED} t.b * t.b + u.m > 5",
    "rounded before the point": f"{JOINED} (t.i * 777)::numeric(3, -2) * 2 + u.q > 5",
    "left, a product": "SELECT t.id, u.id AS other FROM t LEFT JOIN u ON t.k = u.k AND t.n * u.m > 4",
    "full": "SELECT t.id, u.id AS other FROM t FULL JOIN u ON t.k = u.k AND t.p + u.m > 4",
    "exists": "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE u.k = t.k AND t.n - u.m > 1)",
    "an equality with a third table": "SELECT t.id, u.id AS other, v.id AS third FROM t JOIN u ON t.k = u.k "
    "JOIN v ON v.k = t.k WHERE t.n + u.m = v.n",
    "of an optional row": "SELECT t.id, x.s FROM t LEFT JOIN (SELECT u.k, u.m + v.n AS s FROM u JOIN v ON v.k = u.k) "
    "AS x ON x.k = t.k WHERE coalesce(x.s, 0) >= 0",
    "a sum of what is chosen": f"SELECT t.k, sum(CASE WHEN t.n > u.m THEN t.n ELSE u.m END) AS s {BY_K}",
    "of parts that raise where they are not chosen": "SELECT t.k, sum(CASE WHEN t.i > 2 AND u.j <> 2 "
    f"THEN round(u.m / (u.j - 2), 2) * t.n ELSE coalesce(t.n, u.j / (u.k - 1)) + u.j END) AS s {BY_K}",
    "counted": f"SELECT t.k, sum(t.n + u.m) FILTER (WHERE t.n + u.m > 1) AS s, count(*) FILTER (WHERE t.p + u.m > 1) "
    f"AS n, max(t.p * u.q) AS m {BY_K}",
    "extremes of optional rows": "SELECT t.k, max(x.s) AS most, count(x.s) AS n, "
    "string_agg(x.s::text, ',' ORDER BY x.s) AS listed FROM t "
    "LEFT JOIN (SELECT u.k, u.m + v.n AS s FROM u JOIN v ON v.k = u.k) AS x ON x.k = t.k GROUP BY t.k",
    "of a union": "SELECT t.p + u.q AS x FROM t JOIN u ON t.k = u.k "
    "UNION ALL SELECT t.p - u.q FROM t JOIN u ON t.k = u.k",
}


@pytest.fixture
def ms(database: str, spark: SparkSession) -> Millstream:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
    return millstream.connect(database, spark=spark)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_conditions_are_exact_for_numbers_that_spark_has_not(ms: Millstream, database: str) -> None:
    with ms:
        exact_through(ms, database, QUERIES, CHANGES)


@pytest.mark.spark
def test_the_exact_statement_is_run_only_where_it_is_needed(
    ms: Millstream, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For numbers that Spark has, and for a sum that it has not though it has its operands."""
    noted_exact, evaluated = list[bool](), Evaluation._evaluated

    def noted(
        self: Evaluation, statement: Callable[[bool], str], views: dict[str, Rows], *, exact: bool
    ) -> Evaluated:
        def text(is_exact: bool) -> str:
            noted_exact.append(is_exact)
            return statement(is_exact)

        return evaluated(self, text, views, exact=exact)

    monkeypatch.setattr(Evaluation, "_evaluated", noted)
    with ms, psycopg.connect(database, autocommit=True) as writer:
        writer.execute(
            "DELETE FROM t WHERE k < 2 OR k > 3; DELETE FROM u WHERE k < 3; UPDATE t SET n = 1, p = 1, k = 3"
        )
        ms.create_stream_table("filtered", f"{JOINED} t.n + u.m > 4", schedule="manual")
        for change, statements in (
            ("UPDATE t SET n = 2 WHERE id = 5", [False]),
            ("UPDATE t SET n = 'NaN' WHERE id = 6", [True]),
            ("UPDATE t SET n = 2 WHERE id = 6", [True]),
            (
                "UPDATE t SET n = 9e19 WHERE id = 5; UPDATE u SET m = 9e19 WHERE id = 6",
                [False, True],
            ),
        ):
            noted_exact.clear()
            writer.execute(change.encode())
            ms.refresh("filtered")
            assert (change, noted_exact) == (change, statements)
            assert ms.verify("filtered").ok


@pytest.mark.spark
def test_a_comparison_that_takes_all_such_numbers_for_equal_is_noticed(
    ms: Millstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CREATE_COMPARE", f"{CREATE_COMPARE.split(' RETURN ')[0]} RETURN 0")
    with ms:
        ms.create_stream_table("filtered", f"{JOINED} t.n + u.m > 4", schedule="manual")
        assert not ms.verify("filtered").ok


# -- what Spark is told ------------------------------------------------------------------------


def placer_of(expression: Expr) -> Placer:
    orders = Scan(table("orders", "id int4, n numeric, p numeric(12,2), i int4", key="id"), "o")
    prices = Scan(table("prices", "id int4, m numeric, q numeric(8,4), j int4", key="id"), "p")
    return Placer(BranchNames(Region((orders, prices), ())), [expression], PlanningServerDouble())


def placed(condition: str) -> str:
    expression = Expr.parse(condition)
    placer = placer_of(expression)
    return accepted(placer.place(expression, "carry")).expr.sql


def test_a_comparison_is_tried_and_has_an_exact_form() -> None:
    text = placed('"o"."p" + "p"."q" > "o"."n"')
    assert "TRY_ADD(" in text
    assert f"{EXACT}({COMPARE}(CONCAT(" in text


def test_integers_among_themselves_leave_their_range_with_an_error() -> None:
    text = placed('"o"."i" * "p"."j" > "o"."n"')
    assert "TRY_" not in text
    assert COMPARE in text


def test_a_comparison_of_integers_alone_stays_as_it_was() -> None:
    assert COMPARE not in placed('"o"."i" + "p"."j" > "o"."id"')


def test_an_operand_is_read_only_where_it_is_chosen() -> None:
    placer = placer_of(
        Expr.parse('CASE WHEN "o"."i" > "p"."j" THEN "o"."n" ELSE coalesce("p"."m", "o"."n") END')
    )
    attempts = Attempts(placer)
    attempts.of(
        Expr.parse(
            'CASE WHEN "o"."i" > "p"."j" THEN "o"."n" ELSE coalesce("p"."m", "o"."n") END'
        ).node
    )
    assert [operand.split(" THEN")[0].count("WHEN") for operand in attempts.operands] == [
        0,
        1,
        1,
        1,
    ]
    assert attempts.operands[3].count("THEN NULL") == 2, "of the CASE and of the COALESCE"


def test_a_product_of_too_many_digits_is_left_to_postgresql_where_it_can_be() -> None:
    with pytest.raises(Exception, match="too many digits"):
        placed('"o"."n" * "p"."m" > 4')


def test_a_number_that_such_a_comparison_chooses_is_not_compared_in_turn() -> None:
    """Spark raised an error: it has no SQL function inside the lambda of another."""
    with pytest.raises(Exception, match="that a comparison of such numbers chooses"):
        placed('CASE WHEN "o"."n" + "p"."m" > 1 THEN "o"."n" ELSE "p"."m" END < 4')
