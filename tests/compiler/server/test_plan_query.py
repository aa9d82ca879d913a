"""Planning: a query that PostgreSQL takes is planned and stays exact, or is refused by an error of
ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
import pytest

from millstream import Millstream, large_stack
from millstream.errors import PlanningFailed, QueryTooDeep, Unsupported
from millstream.postgres.connection import connect
from millstream.testing import oracle

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE z (id int PRIMARY KEY, d int, x text);
    CREATE TABLE k (id int PRIMARY KEY, v int);
    INSERT INTO z SELECT n, n % 7, 'x' || n % 5 FROM generate_series(1, 20) AS n;
    INSERT INTO k SELECT n, n * 3 FROM generate_series(1, 12) AS n;
"""
CHANGES = (
    "INSERT INTO z VALUES (100, 3, 'x9'), (101, NULL, NULL); UPDATE z SET d = d + 1 WHERE id < 5; "
    "DELETE FROM z WHERE id = 7; UPDATE k SET v = v + 1 WHERE id IN (2, 3)",
    "DELETE FROM z WHERE id > 15; UPDATE z SET x = 'yy' WHERE id = 2; DELETE FROM k WHERE id = 4; "
    "INSERT INTO k VALUES (16, 1)",
)


def stays_exact(ms: Millstream, database: str, queries: Mapping[str, str]) -> None:
    """Create a stream table of each query; after each change, refresh all differentially and ask
    the oracle.
    """
    with connect(database) as conn:
        conn.execute(TABLES.encode())
        for name, query in queries.items():
            ms.create_stream_table(name, query, schedule="1h", refresh_mode="DIFFERENTIAL")
            oracle.check(conn, query, f"public.{name}")
        for change in CHANGES:
            conn.execute(change.encode())
            reports = ms.refresh_all()
            assert {report.action for report in reports} <= {"DIFFERENTIAL", "NO_DATA"}
            assert any(report.action == "DIFFERENTIAL" for report in reports)
            for name, query in queries.items():
                oracle.check(conn, query, f"public.{name}")


def chain(operator: str, *terms: str, count: int) -> str:
    return operator.join([*terms] * (count // len(terms)))


DEEP = {
    "sum_of_a_table": f"SELECT id, {chain(' + ', 'd', count=1000)} AS s FROM z",
    "text_of_a_table": f"SELECT id, {chain(' || ', 'x', count=1000)} AS s FROM z",
    "calls": f"SELECT id, {'replace(' * 200}x{', chr(97), chr(98))' * 200} AS s FROM z",
    "sum_of_a_join": f"SELECT sum({chain(' + ', 'z.d', 'k.v', count=1000)}) AS s FROM z JOIN k ON k.id = z.id",
    "text_of_a_join": f"SELECT z.id, {chain(' || ', 'z.x', 'k.v::text', count=500)} AS s FROM z JOIN k ON k.id = z.id",
    "conditions": f"SELECT id FROM z WHERE {' AND '.join(f'd <> {n}' for n in range(100, 1100))}",
    "alternatives": f"SELECT id FROM z WHERE {' OR '.join(f'(d = {n} AND id > {n})' for n in range(500))}",
    "alternatives_of_a_join": "SELECT z.id FROM z JOIN k ON k.id = z.id AND "
    f"({' OR '.join(f'(z.d = {n} AND k.v > {n})' for n in range(150))})",
    "a_list": f"SELECT id FROM z WHERE d IN ({', '.join(map(str, range(3000)))})",
    "cases": f"SELECT id, CASE {' '.join(f'WHEN d = {n} THEN {n + 1}' for n in range(500))} END AS c FROM z",
    "nested_cases": f"SELECT id, {''.join(f'CASE WHEN d = {n} THEN {n} ELSE ' for n in range(100))}d{' END' * 100} "
    "AS c FROM z",
}


def test_queries_of_a_thousand_levels_stay_exact(ms: Millstream, database: str) -> None:
    """Python's 1,000 frames were used up by 50 terms, and by work that grew with the square of the
    depth.
    """
    stays_exact(ms, database, DEEP)


def test_unions_of_two_hundred_queries_stay_exact(ms: Millstream, database: str) -> None:
    """50 branches raised RecursionError; UNION of 200 became 199 blocks."""
    selects = [f"SELECT id, d + {n} AS d FROM z" for n in range(200)]
    stays_exact(
        ms,
        database,
        {"bag": " UNION ALL ".join(selects), "each_once": " UNION ".join(selects[:60])},
    )


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "FULL JOIN"])
def test_chains_of_joins_stay_exact(ms: Millstream, database: str, kind: str) -> None:
    """Each side of an outer join was computed twice, so ten FULL JOINs 2^10 times; a changed row
    was joined as two.
    """
    joins = " ".join(f"{kind} z AS z{n} ON z{n}.id = z{n - 1}.id" for n in range(1, 16))
    stays_exact(ms, database, {"chain": f"SELECT z0.id, z3.d, z15.x FROM z AS z0 {joins}"})


def test_types_change_along_a_chain_of_unions(ms: Millstream, database: str) -> None:
    """PostgreSQL casts part by part: an integer united with a real is rounded before it is a double
    precision.
    """
    parts = ["SELECT id + 16777216 AS n, x AS t FROM z", "SELECT d::real, x::varchar FROM z"]
    parts += [
        "SELECT d::real, x::varchar FROM z",
        "SELECT d / 4.0::float8, x || ' ' FROM z",
        "SELECT d, x FROM z",
    ]
    stays_exact(
        ms, database, {"united": " UNION ALL ".join(parts), "each_once": " UNION ".join(parts)}
    )


def test_what_is_too_deep_is_refused_by_name(
    ms: Millstream, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a RecursionError.

    A smaller stack stands for a deeper query, which PostgreSQL itself would not take.
    """
    monkeypatch.setattr(large_stack, "STACK", large_stack.SMALLEST)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
    with pytest.raises(QueryTooDeep) as caught:
        ms.create_stream_table("deep", f"SELECT id, {chain(' + ', 'd', count=1000)} AS s FROM z")
    assert caught.value.code == "MS106"
    assert ms.status() == []


def test_a_query_without_columns_is_refused(ms: Millstream, database: str) -> None:
    """`SELECT FROM z` raised ValueError. The hint works."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
    for query in ("SELECT FROM z", "SELECT FROM z JOIN k USING (id)"):
        with pytest.raises(Unsupported, match="a query without columns"):
            ms.create_stream_table("none", query)
    assert ms.create_stream_table("some", "SELECT 1 AS one FROM z") is not None
    assert ms.verify("some").ok


@pytest.mark.parametrize(
    ("broken", "part"),
    [("millstream.compiler.clauses.groups.group_by.Grouping.over", "SELECT z.d, COUNT(*) AS n FROM public.z"),
     ("millstream.compiler.blocks.chain.build_group_block", "Aggregate  g"),
     ("millstream.compiler.server.plan_query._check_sources", "the query")],
)  # fmt: skip
def test_a_defect_of_the_planner_is_named_and_creates_nothing(
    ms: Millstream, database: str, monkeypatch: pytest.MonkeyPatch, broken: str, part: str
) -> None:
    """The last line of defence: it was whatever had been raised, with a traceback on the command
    line.
    """

    def raising(*_args: object, **_more: object) -> None:
        raise KeyError("broken on purpose")

    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
    query = "SELECT sum(q.n) AS s FROM (SELECT d, count(*) AS n FROM z GROUP BY d) AS q"
    with monkeypatch.context() as patch:
        patch.setattr(broken, raising)
        with pytest.raises(PlanningFailed) as caught:
            ms.create_stream_table("broken", query)
    assert caught.value.code == "MS902"
    assert part in caught.value.detail
    assert "KeyError: 'broken on purpose'" in caught.value.detail
    assert "report it" in caught.value.hint
    assert ms.status() == []
    assert ms.create_stream_table("mended", query) is not None


def test_an_operator_found_by_the_search_path_is_refused_if_ours_would_resolve_to_another(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE EXTENSION citext; CREATE TABLE t (id int PRIMARY KEY, c citext)")
    with pytest.raises(Unsupported, match="syntax"):
        ms.create_stream_table("st", "SELECT id, NULLIF(c, 'x') AS c FROM t")
