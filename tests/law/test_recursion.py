"""The law on random graphs: hundreds of changes to all that recursive queries read, each batch
checked.

Edges come, go and are turned round, nodes get other parents, cycles open and close; often the same
edge twice, and often a way is replaced by another in the same batch.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.law.conftest import Law

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SETUP = """
    CREATE TABLE nodes (id int PRIMARY KEY, parent int, kind text);
    CREATE TABLE edges (s int, d int, w int);
    CREATE INDEX ON nodes (parent); CREATE INDEX ON edges (s)
"""
QUERIES = {
    "reached": "WITH RECURSIVE r AS (SELECT id FROM nodes WHERE parent IS NULL UNION "
    "SELECT e.d FROM r JOIN edges AS e ON e.s = r.id) SELECT id FROM r",
    "closure": "WITH RECURSIVE c AS (SELECT s, d FROM edges UNION "
    "SELECT c.s, e.d FROM c JOIN edges AS e ON e.s = c.d) SELECT s, d FROM c",
    "ways": "WITH RECURSIVE p AS (SELECT id, ARRAY[id] AS way FROM nodes WHERE parent IS NULL UNION ALL "
    "SELECT e.d, p.way || e.d FROM p JOIN edges AS e ON e.s = p.id WHERE e.d <> ALL (p.way) "
    "AND cardinality(p.way) < 5) SELECT id, way FROM p",
    "parts": "WITH RECURSIVE b AS (SELECT s, d, w::bigint AS n FROM edges WHERE s < d UNION ALL SELECT b.s, e.d, "
    "b.n * e.w FROM b JOIN edges AS e ON e.s = b.d WHERE e.s < e.d) SELECT s, d, sum(n) AS n, count(*) AS ways "
    "FROM b GROUP BY s, d",
    "tree": "WITH RECURSIVE t AS (SELECT id FROM nodes WHERE kind = 'x' AND parent IS NULL UNION ALL "
    "SELECT n.id FROM t JOIN nodes AS n ON n.parent = t.id) SELECT id FROM t",
    "tagged": "WITH RECURSIVE r AS (SELECT id, kind FROM nodes WHERE parent IS NULL UNION SELECT e.d, "
    "'k' || (e.w % 2)::text FROM r JOIN edges AS e ON e.s = r.id) SELECT id, kind FROM r",
    "allowed": "WITH RECURSIVE r AS (SELECT id FROM nodes WHERE parent IS NULL UNION SELECT e.d FROM r JOIN edges AS e "
    "ON e.s = r.id WHERE NOT EXISTS (SELECT FROM nodes AS n WHERE n.id = e.d AND n.kind = 'x')) SELECT id FROM r",
    "marked": "WITH RECURSIVE r AS (SELECT n.id, EXISTS (SELECT FROM edges AS e WHERE e.d = n.id) AS met "
    "FROM nodes AS n WHERE n.parent IS NULL UNION SELECT e.d, r.met FROM r JOIN edges AS e ON e.s = r.id) "
    "SELECT id, met FROM r",
}
NODES, BATCHES = 9, 18


def changed(dice: random.Random) -> str:
    """One change to a table, its place left to the dice."""
    one, other = dice.randint(1, NODES), dice.randint(1, NODES)
    kind, weight = dice.choice("xyz"), dice.choice(["0", "1", "2", "NULL"])
    some = (
        f"ctid = (SELECT ctid FROM edges ORDER BY (s * 7 + d * {one}) % 11, d, s, w, ctid LIMIT 1)"
    )
    return dice.choice(
        [
            f"INSERT INTO edges VALUES ({one}, {other}, {weight})",
            f"INSERT INTO edges VALUES ({one}, {dice.choice([str(other), 'NULL'])}, {weight})",
            f"DELETE FROM edges WHERE {some}",
            f"DELETE FROM edges WHERE {some}",
            f"UPDATE edges SET s = d, d = s WHERE {some}",
            f"UPDATE edges SET s = {other} WHERE {some}",
            f"UPDATE nodes SET parent = {other} WHERE id = {one} AND {other} <> {one}",
            f"UPDATE nodes SET parent = NULL, kind = '{kind}' WHERE id = {one}",
            f"DELETE FROM nodes WHERE id = {one}",
            f"INSERT INTO nodes VALUES ({one}, {dice.choice([str(other), 'NULL'])}, '{kind}') ON CONFLICT DO NOTHING",
        ]
    )


@pytest.mark.parametrize("seed", [1])
def test_random_graphs(law: Law, seed: int) -> None:
    dice = random.Random(seed)
    law.change(SETUP, "INSERT INTO nodes VALUES (1, NULL, 'x'), (2, 1, 'y'), (3, NULL, 'z')")
    for name, query in QUERIES.items():
        law.create(name, query)
    for batch in range(BATCHES):
        # Few changes show what many hide: every other batch is small.
        law.change(*(changed(dice) for _ in range(3 if batch % 2 else 40)))
        law.change(f"INSERT INTO edges VALUES ({batch % NODES + 1}, {NODES}, 1)")
        law.change(
            f"DELETE FROM nodes WHERE id = 99; INSERT INTO nodes VALUES (99, {batch % NODES + 1}, 'x')"
        )
        law.refresh_all()
