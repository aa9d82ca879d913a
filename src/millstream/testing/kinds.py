"""One query of each kind of block: groups, rows, windows, chains, recursions; each over a table of
its own.

KINDS["sums"].format(t="t7")
"""

from __future__ import annotations

import psycopg

KINDS = {
    "sums": "SELECT k, count(*) AS n, sum(v) AS v FROM {t} GROUP BY k",
    "extremes": "SELECT k, max(v) AS v, min(s) AS s FROM {t} GROUP BY k",
    "gathered": "SELECT k, array_agg(s ORDER BY id) AS a, count(DISTINCT v) AS d FROM {t} GROUP BY k",
    "bag": "SELECT k, s FROM {t}",
    "keyed": "SELECT id, v, s FROM {t} WHERE v > 3",
    "window": "SELECT id, k, sum(v) OVER (PARTITION BY k ORDER BY id) AS v FROM {t}",
    "first": "SELECT id, v FROM {t} ORDER BY v DESC, id LIMIT 3",
    "chain": "SELECT n, count(*) AS groups FROM (SELECT k, count(*) AS n FROM {t} GROUP BY k) AS g GROUP BY n",
    "set": "WITH RECURSIVE r AS (SELECT id, k FROM {t} WHERE id < 3 UNION SELECT t.id, t.k FROM {t} AS t "
    "JOIN r ON t.id = r.id + 3) SELECT * FROM r",
    "levels": "WITH RECURSIVE r AS (SELECT id, 1 AS n FROM {t} WHERE id < 3 UNION ALL SELECT t.id, n + 1 FROM {t} AS t "
    "JOIN r ON t.id = r.id + 3) SELECT * FROM r",
}


def make_table(conn: psycopg.Connection, name: str, rows: int = 9) -> None:
    """Create the table that they read."""
    conn.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, k int, v numeric(10,2), s text);"
        f"INSERT INTO {name} SELECT n, n % 3, n, 'x' || n FROM generate_series(1, {rows}) AS n".encode()
    )
