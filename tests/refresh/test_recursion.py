"""Recursive queries: trees, graphs with cycles, parts lists; each refresh is exact, and
differential.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import millstream
from millstream import Millstream, Settings
from millstream.algebra.block import RecursionBlock
from millstream.errors import RecursionTooDeep, Unsupported
from millstream.refresh.report import RefreshReport

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TABLES = """
    CREATE TABLE nodes (id int PRIMARY KEY, parent int, name text, rate numeric);
    CREATE TABLE edges (s int, d int, w int);
    CREATE INDEX ON nodes (parent); CREATE INDEX ON edges (s);
    INSERT INTO nodes SELECT n, nullif(n / 3, 0), 'n' || n, 1 + n / 10.0 FROM generate_series(1, 20) AS n;
    INSERT INTO edges SELECT n % 7 + 1, n * 5 % 11 + 1, n % 4 FROM generate_series(1, 14) AS n;
    CREATE VIEW reached AS WITH RECURSIVE r AS
        (SELECT 1 AS id UNION SELECT e.d FROM r JOIN edges AS e ON e.s = r.id) SELECT id FROM r;
"""
CHANGE = """
    UPDATE nodes SET parent = 1 WHERE id = 7;
    UPDATE nodes SET parent = NULL, name = 'root' WHERE id = 4;
    DELETE FROM nodes WHERE id IN (3, 19);
    INSERT INTO nodes VALUES (30, 7, 'new', 2), (31, 30, 'newer', 0.50);
    INSERT INTO edges VALUES (2, 9, 3), (9, 2, 1), (9, 2, 1);
    DELETE FROM edges WHERE w = 2;
    UPDATE edges SET d = s WHERE w = 0;
"""
REACHED = (
    "WITH RECURSIVE r AS (SELECT 1 AS id UNION SELECT e.d FROM r JOIN edges AS e ON e.s = r.id)"
)
UNDER = (
    "WITH RECURSIVE t AS (SELECT id, name, 0 AS depth FROM nodes WHERE parent IS NULL UNION ALL "
    "SELECT n.id, t.name || '/' || n.name, t.depth + 1 FROM t JOIN nodes AS n ON n.parent = t.id)"
)
KEPT = {
    "what is reached, in cycles": f"{REACHED} SELECT id FROM r",
    "who reaches whom": "WITH RECURSIVE c AS (SELECT s, d FROM edges UNION "
    "SELECT c.s, e.d FROM c JOIN edges AS e ON e.s = c.d) SELECT s, d FROM c",
    "a tree with depths and paths as text": f"{UNDER} SELECT id, depth, name FROM t",
    "all ways, as arrays that end at a cycle": "WITH RECURSIVE p AS (SELECT 1 AS id, ARRAY[1] AS way UNION ALL "
    "SELECT e.d, p.way || e.d FROM p JOIN edges AS e ON e.s = p.id WHERE e.d <> ALL (p.way)) SELECT id, way FROM p",
    "a list of parts": "WITH RECURSIVE b AS (SELECT s AS whole, d AS part, w::bigint AS n, 1 AS l FROM edges "
    "UNION ALL SELECT b.whole, e.d, b.n * e.w, b.l + 1 FROM b JOIN edges AS e ON e.s = b.part WHERE b.l < 4) "
    "SELECT whole, part, sum(n) AS n FROM b GROUP BY whole, part",
    "several uses": f"{REACHED} SELECT a.id, b.w, (SELECT count(*) FROM r) AS n FROM r AS a "
    "JOIN edges AS b ON b.s = a.id",
    "what is not reached": f"{REACHED} SELECT id FROM nodes WHERE id NOT IN (SELECT id FROM r)",
    "in a view": "SELECT v.id, n.name FROM reached AS v JOIN nodes AS n ON n.id = v.id",
    "over groups, and grouped": "WITH RECURSIVE r AS (SELECT 1 AS id UNION SELECT g.d FROM r JOIN "
    "(SELECT s, d, sum(w) AS w FROM edges GROUP BY s, d) AS g ON g.s = r.id WHERE g.w > 0) "
    "SELECT id % 2 AS odd, count(*) AS n, max(id) AS most FROM r GROUP BY id % 2",
    "an outer join in the step": "WITH RECURSIVE r AS (SELECT 1 AS id, 0 AS w UNION SELECT coalesce(e.d, 0), "
    "coalesce(e.w, -1) FROM r LEFT JOIN edges AS e ON e.s = r.id AND e.w > 0) SELECT id, w FROM r",
    "EXISTS in the step": "WITH RECURSIVE r AS (SELECT 1 AS id UNION SELECT e.d FROM r JOIN edges AS e ON e.s = r.id "
    "WHERE NOT EXISTS (SELECT FROM nodes AS n WHERE n.id = e.d AND n.parent = 1)) SELECT id FROM r",
    "a union inside, several beginnings": "WITH RECURSIVE r AS (SELECT id, parent FROM nodes WHERE parent IS NULL "
    "UNION ALL SELECT s, d FROM edges WHERE w = 1 UNION ALL SELECT x.d, x.s FROM r JOIN (SELECT s, d FROM edges "
    "WHERE s < d UNION ALL SELECT parent, id FROM nodes WHERE parent < id) AS x ON x.s = r.id) "
    "SELECT id, parent, count(*) AS n FROM r GROUP BY id, parent",
    "one over another": "WITH RECURSIVE k AS (SELECT s, d FROM edges WHERE w = 1 UNION SELECT k.s, e.d FROM k JOIN "
    "edges AS e ON e.s = k.d), r AS (SELECT 1 AS id, 0 AS h UNION SELECT k.d, r.h + 1 FROM r JOIN k ON k.s = r.id "
    "WHERE r.h < 3) SELECT id, h FROM r",
    "numbers that are equal and look different": "WITH RECURSIVE r AS (SELECT id, 1.0 AS rate FROM nodes "
    "WHERE parent IS NULL UNION SELECT n.id, r.rate * n.rate / n.rate FROM r JOIN nodes AS n ON n.parent = r.id) "
    "SELECT id, rate FROM r",
    "counting": "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c WHERE n < 12) "
    "SELECT c.n, nodes.name FROM c LEFT JOIN nodes ON nodes.id = c.n",
    "a function over the recursion": "WITH RECURSIVE r AS (SELECT id, ARRAY[id, parent] AS a FROM nodes "
    "WHERE id < 5 UNION SELECT x.x, ARRAY[e.d, e.w] FROM r CROSS JOIN unnest(r.a) AS x (x) "
    "JOIN edges AS e ON e.s = x.x) SELECT id, a FROM r",
    "the first of it": f"{UNDER} SELECT id, depth FROM t ORDER BY depth DESC, id LIMIT 5",
    "DISTINCT before UNION": "WITH RECURSIVE r AS (SELECT 2 AS id UNION SELECT DISTINCT e.d FROM r "
    "JOIN edges AS e ON e.s = r.id) SELECT id FROM r",
}
REFUSED = {
    "of the recursive table, in its own term": "WITH RECURSIVE r AS (SELECT id FROM nodes UNION ALL "
    "SELECT e.d FROM (SELECT id, row_number() OVER () AS n FROM r) AS q JOIN edges AS e ON e.s = q.id WHERE q.n < 3) "
    "SELECT id FROM r",
    "more than once": "WITH RECURSIVE r AS (SELECT id FROM nodes UNION (WITH x AS (SELECT id FROM r) "
    "SELECT x.id FROM x JOIN x AS y ON x.id = y.id)) SELECT id FROM r",
    "not in each of its parts": "WITH RECURSIVE r AS (SELECT id FROM nodes UNION (SELECT e.d FROM r JOIN edges AS e "
    "ON e.s = r.id UNION ALL SELECT d FROM edges)) SELECT id FROM r",
    "in a recursive query": "WITH RECURSIVE r AS (SELECT id, name FROM nodes UNION ALL SELECT n.id, n.name FROM r "
    "JOIN nodes AS n ON starts_with(n.name, r.name) AND n.id > r.id) SELECT id FROM r",
    "a recursive UNION of jsonb": "WITH RECURSIVE r AS (SELECT id, to_jsonb(id) AS j FROM nodes UNION "
    "SELECT e.d, r.j FROM r JOIN edges AS e ON e.s = r.id) SELECT id FROM r",
}


@pytest.fixture
def ms(database: str) -> Iterator[Millstream]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
    with millstream.connect(database, settings=Settings(max_recursion_steps=40)) as client:
        yield client


def kept(ms: Millstream, query: str) -> None:
    ms.create_stream_table("st", query, schedule="1h", refresh_mode="DIFFERENTIAL")


def refreshed(ms: Millstream) -> RefreshReport:
    """A refresh that is differential and exact."""
    report = ms.refresh("st")
    assert (report.action, ms.verify("st").ok) == ("DIFFERENTIAL", True)
    return report


def test_each_is_exact(ms: Millstream, writer: psycopg.Connection) -> None:
    names = {what: f"st_{number}" for number, what in enumerate(KEPT)}
    for what, query in KEPT.items():
        ms.create_stream_table(names[what], query, schedule="1h", refresh_mode="DIFFERENTIAL")
    writer.execute(CHANGE)
    reports = {report.name: report.action for report in ms.refresh_all()}
    wrong = [what for what, name in names.items() if not ms.verify(name).ok]
    assert not wrong
    assert set(reports.values()) == {"DIFFERENTIAL"}


def test_a_full_refresh_finds_nothing_to_correct(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    some = ["what is reached, in cycles", "a tree with depths and paths as text"]
    for number, what in enumerate(some):
        ms.create_stream_table(
            f"st_{number}", KEPT[what], schedule="1h", refresh_mode="DIFFERENTIAL"
        )
    writer.execute(CHANGE)
    ms.refresh_all()
    assert [ms.refresh(f"st_{number}", full=True).rows_changed for number in range(len(some))] == [
        0,
        0,
    ]
    writer.execute("DELETE FROM edges WHERE s = 1; DELETE FROM nodes WHERE parent = 1")
    assert [
        ms.refresh(f"st_{number}", full=True).rows_deleted > 0 for number in range(len(some))
    ] == [True, True]
    assert [ms.verify(f"st_{number}").ok for number in range(len(some))] == [True, True]


@pytest.mark.parametrize("what", REFUSED)
def test_each_is_refused(ms: Millstream, what: str) -> None:
    with pytest.raises(Unsupported, match=what):
        ms.create_stream_table("st", REFUSED[what])


SWAP = """
    TRUNCATE edges; INSERT INTO edges VALUES (1, 2, 1), (2, 3, 1)
"""
SWAPPED = "DELETE FROM edges WHERE s = 1; INSERT INTO edges VALUES (3, 2, 1)"


def test_a_cycle_that_only_supports_itself_goes(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute(SWAP)
    kept(ms, KEPT["what is reached, in cycles"])
    # 2 loses the way from 1 and gains one from 3, which is reached from 2 alone.
    writer.execute(SWAPPED)
    assert refreshed(ms).rows_deleted == 2
    writer.execute("INSERT INTO edges VALUES (1, 3, 1)")
    assert refreshed(ms).rows_inserted == 2


def test_a_cycle_that_is_not_reached_does_not_keep_union_all_from_ending(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(SWAP)
    kept(ms, f"{REACHED.replace('UNION', 'UNION ALL')} SELECT id FROM r")
    writer.execute(SWAPPED)
    assert refreshed(ms).rows_deleted == 2


def test_a_row_that_is_derived_otherwise_stays(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute(
        "TRUNCATE edges; INSERT INTO edges VALUES (1, 2, 1), (1, 3, 1), (2, 4, 1), (3, 4, 1), (4, 5, 1)"
    )
    kept(ms, KEPT["what is reached, in cycles"])
    writer.execute("DELETE FROM edges WHERE (s, d) = (2, 4)")
    assert refreshed(ms).rows_changed == 0
    writer.execute("DELETE FROM edges WHERE (s, d) = (3, 4)")
    assert refreshed(ms).rows_deleted == 2


def test_what_two_rows_derived_alike_goes_with_both(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("TRUNCATE nodes, edges; INSERT INTO nodes VALUES (1, 1, 'a', 0), (2, 1, 'b', 0)")
    writer.execute("INSERT INTO edges VALUES (1, 5, 3), (5, 6, 3)")
    kept(
        ms,
        "WITH RECURSIVE r AS (SELECT parent AS id, name FROM nodes UNION SELECT e.d, 'x' FROM r "
        "JOIN edges AS e ON e.s = r.id) SELECT id, name FROM r",
    )
    # The step sees no difference between the two, and a second edge comes just as they go.
    writer.execute("DELETE FROM nodes; INSERT INTO edges VALUES (1, 5, 3)")
    assert refreshed(ms).rows_deleted == 4


@pytest.mark.parametrize("union", ["UNION", "UNION ALL"])
def test_a_pair_that_was_never_joined_is_not_computed_with(
    ms: Millstream, writer: psycopg.Connection, union: str
) -> None:
    writer.execute("TRUNCATE nodes, edges; INSERT INTO nodes VALUES (1, 2, 'a', 0), (2, 3, 'b', 5)")
    writer.execute("INSERT INTO edges VALUES (2, 9, 3)")
    kept(
        ms,
        f"WITH RECURSIVE r AS (SELECT id, rate FROM nodes {union} SELECT e.d, e.w / r.rate FROM r "
        "JOIN edges AS e ON e.s = r.id) SELECT id, rate FROM r",
    )
    # Row 1 goes before its edge comes: nothing is ever divided by its 0.
    writer.execute("DELETE FROM nodes WHERE id = 1; INSERT INTO edges VALUES (1, 9, 4), (9, 10, 6)")
    assert refreshed(ms).rows_changed == 2


def test_an_endless_recursion_is_an_error_and_can_be_repaired(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    kept(ms, KEPT["a tree with depths and paths as text"])
    writer.execute(
        "INSERT INTO nodes VALUES (50, 1, 'x', 1); UPDATE nodes SET parent = 50 WHERE id = 1"
    )
    writer.execute("INSERT INTO nodes VALUES (51, NULL, 'top', 1)")
    # Neither 1 nor what is under it is reached any more.
    assert refreshed(ms).rows_deleted > 10
    writer.execute(
        "CREATE TABLE tops AS SELECT 1 AS id; UPDATE nodes SET parent = NULL WHERE id = 1"
    )
    refreshed(ms)
    ms.create_stream_table(
        "loop",
        "WITH RECURSIVE r AS (SELECT id FROM tops UNION ALL SELECT e.d FROM r JOIN edges AS e ON e.s = r.id "
        "WHERE e.w = 7) SELECT id FROM r",
        schedule="1h",
        refresh_mode="DIFFERENTIAL",
    )
    writer.execute("INSERT INTO edges VALUES (1, 2, 7), (2, 1, 7)")
    with pytest.raises(RecursionTooDeep, match="after 40 steps"):
        ms.refresh("loop")
    writer.execute("DELETE FROM edges WHERE (s, w) = (2, 7)")
    assert ms.refresh("loop").rows_inserted == 1
    assert ms.verify("loop").ok


def test_several_uses_are_one_block(ms: Millstream) -> None:
    kept(ms, KEPT["several uses"])
    blocks = ms.app.plan(ms.app.named("st")).blocks
    assert sum(isinstance(block, RecursionBlock) for block in blocks) == 1


def test_it_reads_stream_tables_and_is_read_by_them(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    graph = {
        "strong": "SELECT s, d, sum(w) AS w FROM edges GROUP BY s, d HAVING sum(w) > 1",
        "st": "WITH RECURSIVE r AS (SELECT 1 AS id UNION SELECT e.d FROM r JOIN strong AS e ON e.s = r.id) "
        "SELECT id FROM r",
        "named": "SELECT st.id, n.name FROM st LEFT JOIN nodes AS n ON n.id = st.id",
    }
    for name, query in graph.items():
        ms.create_stream_table(name, query, schedule="1h", refresh_mode="DIFFERENTIAL")
    for change in (CHANGE, "UPDATE edges SET w = 2 WHERE s = 1; DELETE FROM edges WHERE s = 2"):
        writer.execute(change)
        ms.refresh_all()
        assert [name for name in graph if not ms.verify(name).ok] == []


def test_a_column_that_stands_there_twice(ms: Millstream, writer: psycopg.Connection) -> None:
    kept(
        ms,
        "WITH RECURSIVE r AS (SELECT 1 AS id, 1 AS same UNION SELECT e.d, e.d FROM r JOIN edges AS e ON e.s = r.id) "
        "SELECT id, same FROM r",
    )
    writer.execute(CHANGE)
    refreshed(ms)


def test_a_source_that_was_emptied_empties_it(ms: Millstream, writer: psycopg.Connection) -> None:
    kept(ms, KEPT["who reaches whom"])
    writer.execute("DELETE FROM edges")
    refreshed(ms)
    writer.execute("INSERT INTO edges VALUES (1, 1, 1), (1, 2, 1), (2, NULL, 1), (NULL, 3, 1)")
    assert refreshed(ms).rows_inserted == 5
