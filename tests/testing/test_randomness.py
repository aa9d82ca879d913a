"""What is random comes from a seed: the same seed, the same tables, rows, changes and queries."""

from __future__ import annotations

import random

import pytest

from millstream.postgres.connection import Connection
from millstream.testing.queries import RandomQueries
from millstream.testing.randomness import KINDS, RandomChanges, random_tables


def contents(conn: Connection, seed: int, *, cased: bool) -> tuple[list[object], list[str]]:
    """All rows after some changes, and some queries over them; everything is dropped again."""
    dice = random.Random(seed)
    tables = random_tables(dice, cased=cased)
    with conn.transaction(force_rollback=True):
        changes = RandomChanges(conn, tables, dice, cases=10 if cased else 1)
        changes.create()
        changes.fill(4)
        touched = [sorted(changes.batch()) for _ in range(2)]
        rows = [
            conn.execute(f"SELECT t::text FROM {t.name} AS t ORDER BY 1".encode()).fetchall()
            for t in tables
        ]
    queries = RandomQueries(tables, dice)
    return [touched, rows, changes.log], [queries.next().sql for _ in range(10)]


@pytest.mark.parametrize("cased", [True, False])
def test_a_seed_gives_the_same_every_time(conn: Connection, cased: bool) -> None:
    assert contents(conn, 5, cased=cased) == contents(conn, 5, cased=cased)
    assert contents(conn, 5, cased=cased) != contents(conn, 6, cased=cased)


@pytest.mark.parametrize("cased", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_postgres_accepts_every_query(conn: Connection, seed: int, cased: bool) -> None:
    dice = random.Random(seed)
    tables = random_tables(dice, cased=cased)
    RandomChanges(conn, tables, dice).create()
    queries = RandomQueries(tables, dice)
    for _ in range(60):
        query = queries.next()
        for statement in (*query.setup, f"EXPLAIN {query.sql}"):
            conn.execute(statement.encode())


def test_every_kind_of_part_is_generated() -> None:
    dice = random.Random(1)
    parts = set[str]()
    for number in range(1500):
        parts |= RandomQueries(random_tables(dice, cased=number % 2 == 0), dice).next().parts
    wanted = {
        "plain", "grouped", "combined", "distinct at the top", "global", "having", "filter clause", "ids",
        "view", "CTE", "CTE used again", "subquery", "filtered", "united", "distinct", "grouped inside", "padded",
        "windowed", "DISTINCT ON", "limited", "ORDER BY, LIMIT", "rank", "row_number", "sum over", "lag", "moving",
        "1 tables", "2 tables", "3 tables", "4 tables", "equal", "two", "theta", "mixed", "case only",
        "INNER join", "LEFT join", "RIGHT join", "FULL join", "INNER using", "LEFT using", "RIGHT using", "FULL using",
        "LEFT join inside", "RIGHT join inside", "FULL join inside", "join in parentheses", "one side in ON",
        "OR in ON", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL", "ROLLUP", "CUBE",
        "set operation in parentheses",
        "EXISTS", "NOT EXISTS", "IN", "NOT IN", "IN of two columns", "correlated", "asked inside",
        *(f"{operator} {which}" for operator in ("=", "<>", "<", "<=", ">", ">=") for which in ("ANY", "ALL")),
        "asked plainly", "asked under NOT", "asked under OR", "asked under coalesce",
        "scalar", "scalar by key", *(f"scalar {call}" for call in ("sum", "min", "max", "avg", "count", "coalesce")),
        "subquery in WHERE", "subquery in HAVING", "subquery in the select list", "subquery over groups",
        "count(*)", "count", "sum", "avg", "min", "max", "spread", "count(DISTINCT)", "string_agg", "array_agg",
        "LATERAL", "CROSS JOIN LATERAL", "LEFT JOIN LATERAL", "LEFT JOIN LATERAL ON",
        *(f"lateral {body}" for body in ("rows", "first", "groups", "aggregate", "window", "union")),
        "two levels", "EXISTS of groups", "IN of the first", "scalar DISTINCT", "scalar LIMIT",
        "scalar tied by equality", "scalar tied by anything",
        "function", "CROSS JOIN function", "LEFT JOIN function", "LEFT JOIN function ON", "set in the select list",
        "unnest", "generate_series", "jsonb_array_elements", "string_to_table", "ROWS FROM", "WITH ORDINALITY",
        "recursive UNION", "recursive UNION ALL",
        "expression across", "key across", "number across", "extreme across",
        "BETWEEN", "BETWEEN SYMMETRIC", "IN of a list", "= ANY of an array", "<> ALL of an array", "row = row",
        "row IN", "LIKE", "ILIKE", "SIMILAR TO", "regular expression", "COLLATE", "boolean column", "boolean AND OR",
        "null-extended", "constant", "constant to join by", "LATERAL subquery", "outer column in LATERAL",
        "scalar that hides NULLs", *(f"{kind} join of a query" for kind in ("LEFT", "RIGHT", "FULL")),
        "IS NULL", "IS DISTINCT FROM", "CASE of NULL", "simple CASE", "COALESCE", "IS TRUE", "OR true", "AND false",
        "row IS NULL", "num_nulls", "GREATEST", "LEAST", "concat", "ARRAY", "jsonb_build_object", "OR", "AND",
    }  # fmt: skip
    assert wanted - parts == set()


@pytest.mark.parametrize("cased", [True, False])
def test_each_null_extended_query_has_a_constant_and_is_accepted_by_postgres(
    conn: Connection, cased: bool
) -> None:
    dice = random.Random(3)
    tables = random_tables(dice, cased=cased)
    RandomChanges(conn, tables, dice).create()
    queries = RandomQueries(tables, dice)
    for _ in range(25):
        query = queries.null_extended()
        assert "constant" in query.parts
        for statement in (*query.setup, f"EXPLAIN {query.sql}"):
            conn.execute(statement.encode())


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_is_one_of_its_type(conn: Connection, kind: str) -> None:
    type_ = KINDS[kind].type.split(" COLLATE")[0]
    for value in KINDS[kind].values:
        conn.execute(f"SELECT %s::text::{type_}".encode(), (value,))
