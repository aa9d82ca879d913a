"""SEARCH and CYCLE of recursive queries: each refresh is exact, and differential; to show a record
is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream, Settings
from millstream.errors import BadQuery, Unsupported

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TABLES = """
    CREATE DOMAIN colour AS text;
    CREATE TABLE edges (s int, d int, w numeric(6,2), t text, c colour, a int[]);
    CREATE INDEX ON edges (s);
    INSERT INTO edges SELECT n % 5 + 1, nullif(n * 3 % 7, 0), n / 4, chr(97 + n % 3), 'c' || n % 2, ARRAY[n]
    FROM generate_series(1, 9) AS n;
"""
CHANGES = [
    "DELETE FROM edges WHERE w = 1; INSERT INTO edges VALUES (1, 1, 1.0, 'a', 'c1'), (NULL, 1, 1.00, NULL, NULL)",
    "UPDATE edges SET d = s WHERE s = 2; INSERT INTO edges VALUES (2, 4, 0.5, 'b', 'c2'), (4, NULL, 2, 'b', 'c2')",
    "UPDATE edges SET d = NULL WHERE s = 3; DELETE FROM edges WHERE s = 4",
    "DELETE FROM edges WHERE s = 1",
]


def recursive(
    clauses: str,
    columns: str = "d AS id, w, t, c, 0 AS n",
    union: str = "UNION ALL",
    more: str = "",
) -> str:
    """From the first edges on, along all others."""
    return (
        f"WITH RECURSIVE r AS (SELECT {columns} FROM edges WHERE s = 1 {union} "
        f"SELECT e.d, e.w, e.t, e.c, r.n + 1 FROM r JOIN edges AS e ON e.s = r.id "
        f"WHERE r.n < 4 {more}) {clauses}"
    )


KEPT = {
    "a cycle is marked": recursive(
        "CYCLE id SET again USING path SELECT id, n, again, cardinality(path) AS l FROM r"
    ),
    "only where there is none": recursive(
        "CYCLE id SET again USING path SELECT id, t FROM r WHERE NOT again"
    ),
    "marks of another type": recursive(
        "CYCLE id SET again TO varchar(3) 'Y' DEFAULT varchar(3) 'N' USING path SELECT again, count(*) AS n FROM r "
        "GROUP BY again"
    ),
    "no mark at all": recursive(
        "CYCLE id SET again TO 1 DEFAULT NULL USING path SELECT id, n, again FROM r"
    ),
    "by two columns": recursive("CYCLE id, w SET again USING path SELECT id, w, n, again FROM r"),
    "by four": recursive(
        "CYCLE id, w, t, c SET again USING path SELECT id, w, t, c, n, again FROM r"
    ),
    "by text and a domain": recursive(
        "CYCLE t, c SET again USING path SELECT id, t, c, again FROM r"
    ),
    "UNION": recursive("CYCLE id SET again USING path SELECT id, n, again FROM r", union="UNION"),
    "UNION, by two": recursive(
        "CYCLE id, t SET again USING path SELECT id, n, again FROM r", union="UNION"
    ),
    "the mark in the step": recursive(
        "CYCLE id SET again USING path SELECT id, n, again FROM r",
        more="AND (NOT r.again OR e.d > 0)",
    ),
    "a search that orders nothing": recursive(
        "SEARCH DEPTH FIRST BY id SET seq SELECT id, n FROM r ORDER BY seq, id"
    ),
    "the first by depth": recursive(
        "SEARCH DEPTH FIRST BY id SET seq SELECT id FROM r ORDER BY seq, n, t, w LIMIT 7"
    ),
    "the last by depth": recursive(
        "SEARCH DEPTH FIRST BY id SET seq SELECT id FROM r ORDER BY seq DESC, n LIMIT 3"
    ),
    "the first by breadth": recursive(
        "SEARCH BREADTH FIRST BY t SET seq SELECT t, n FROM r ORDER BY seq LIMIT 5"
    ),
    "numbers by depth": recursive(
        "SEARCH DEPTH FIRST BY id, n SET seq SELECT id, n, rank() OVER (ORDER BY seq) AS k, cardinality(seq) AS l "
        "FROM r"
    ),
    "numbers by breadth": recursive(
        "SEARCH BREADTH FIRST BY t, id SET seq SELECT id, t, rank() OVER (PARTITION BY id % 2 ORDER BY seq DESC) AS k "
        "FROM r"
    ),
    "UNION tells rows apart by the search": recursive(
        "SEARCH DEPTH FIRST BY id, t SET seq SELECT id, count(*) AS n FROM r GROUP BY id",
        union="UNION",
    ),
    "UNION and breadth": recursive(
        "SEARCH BREADTH FIRST BY id SET seq SELECT id, count(*) AS n FROM r GROUP BY id",
        union="UNION",
    ),
    "both, and another query after": recursive(
        "SEARCH DEPTH FIRST BY t SET seq CYCLE id SET again USING path, z AS (SELECT t, max(w) AS w, 1 AS path "
        "FROM edges GROUP BY t) SELECT r.id, z.path, z.w, r.again, rank() OVER (ORDER BY r.seq) AS k FROM r "
        "JOIN z ON z.t = r.t"
    ),
    "in a subquery, with other names": "SELECT e.t, q.* FROM edges AS e LEFT JOIN LATERAL ("
    + recursive(
        "CYCLE id SET again USING path SELECT x.one, x.again FROM r AS x (one) WHERE x.one = 3"
    )
    + ") AS q ON q.one = e.s",
    "VALUES, and names given": "WITH RECURSIVE r (id, l) AS (VALUES (1, 0) UNION ALL SELECT e.d, r.l + 1 FROM r "
    "JOIN edges AS e ON e.s = r.id) CYCLE id SET again USING path SELECT id, l, again FROM r",
}
REFUSED = {
    "of several types": recursive(
        "SEARCH DEPTH FIRST BY id, t SET seq SELECT id FROM r ORDER BY seq LIMIT 3"
    ),
    'by the array "a"': "WITH RECURSIVE r AS (SELECT s, a FROM edges UNION ALL SELECT e.d, r.a FROM r JOIN edges AS e "
    "ON e.s = r.s) CYCLE a SET again USING path SELECT s, again FROM r",
    '"path", which SEARCH or CYCLE adds': recursive(
        "CYCLE id SET again USING path SELECT DISTINCT cardinality(p) AS n FROM (SELECT path AS p FROM r) AS q"
    ),
    "in a subquery of its own term": "WITH RECURSIVE r AS (SELECT s FROM edges UNION ALL SELECT e.d FROM "
    "(SELECT s FROM r) AS q JOIN edges AS e ON e.s = q.s) CYCLE s SET again USING path SELECT s FROM r",
}


@pytest.fixture
def ms(database: str, spark: SparkSession) -> Iterator[Millstream]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
    with millstream.connect(
        database, spark=spark, settings=Settings(max_recursion_steps=40)
    ) as client:
        yield client


def test_each_is_exact(ms: Millstream, database: str) -> None:
    names = {what: f"st_{number}" for number, what in enumerate(KEPT)}
    for what, query in KEPT.items():
        ms.create_stream_table(names[what], query, schedule="1h", refresh_mode="DIFFERENTIAL")
    marked = list[int]()
    for change in CHANGES:
        with psycopg.connect(database, autocommit=True) as writer:
            writer.execute(change)
        actions = {report.action for report in ms.refresh_all()}
        wrong = [what for what, name in names.items() if not ms.verify(name).ok]
        assert (wrong, actions) == ([], {"DIFFERENTIAL"})
        query = f"SELECT count(*) FROM public.{names['a cycle is marked']} WHERE again"
        marked += [row[0] for row in ms.app.conn.execute(query.encode())]
    assert len(set(marked)) > 1, "marks that come and go"


@pytest.mark.parametrize("what", REFUSED)
def test_each_is_refused(ms: Millstream, what: str) -> None:
    with pytest.raises(Unsupported, match=what):
        ms.create_stream_table("st", REFUSED[what])


def test_a_path_itself_is_refused_by_the_server(ms: Millstream) -> None:
    with pytest.raises(BadQuery, match="pseudo-type"):
        ms.create_stream_table(
            "st", recursive("CYCLE id SET again USING path SELECT id, path FROM r")
        )
