"""The law: conditions that only PostgreSQL can evaluate, in every kind of join."""

from __future__ import annotations

import pytest
from tests.law.conftest import Law, law

__all__ = ["law"]  # a fixture

pytestmark = pytest.mark.spark

SETUP = """
    CREATE EXTENSION btree_gist; CREATE EXTENSION fuzzystrmatch;
    CREATE TABLE orders (id int PRIMARY KEY, item int, at date, note text, price numeric, tags text[], doc jsonb,
        spot point, stamp timestamp);
    CREATE TABLE prices (id int PRIMARY KEY, item int, valid daterange, price numeric(8,2), pattern text, wanted text[],
        part jsonb, area polygon, on_day date);
    CREATE INDEX ON prices USING gist (item, valid);
    CREATE INDEX ON orders USING gin (doc);
    CREATE TABLE plain (n numeric);
    INSERT INTO plain VALUES (1), (1.0), (1.00), (1.0), (2.50), (NULL);
    CREATE TABLE logs (at date, note text, item int);
    CREATE TABLE rules (valid daterange, pattern text, item int);
    INSERT INTO orders SELECT i, i % 4, date '2024-01-01' + i % 17,
        'note ' || i % 7, i * 1.5, ARRAY['t' || i % 3, 't' || i % 4],
        jsonb_build_object('k', i % 3, 'm', i % 2),
        point(i % 9, i % 5), timestamp '2024-01-01' + i % 17 * interval '12 hours'
        FROM generate_series(1, 40) AS i;
    INSERT INTO prices SELECT i, i % 5, daterange(date '2024-01-01' + i, date '2024-01-04' + i), i,
        'note ' || i % 5 || '%', ARRAY['t' || i % 3],
        jsonb_build_object('k', i % 4),
        polygon(box(point(i % 4, i % 4), point(i % 4 + 3, i % 4 + 2))), date '2024-01-01' + i
        FROM generate_series(1, 15) AS i;
    INSERT INTO orders (id) VALUES (90), (91);
    INSERT INTO prices (id) VALUES (90);
    INSERT INTO logs SELECT at, note, item FROM orders WHERE id < 20 OR id > 80;
    INSERT INTO logs SELECT at, note, item FROM orders WHERE id < 5;
    INSERT INTO rules SELECT valid, pattern, item FROM prices;
    INSERT INTO rules SELECT valid, pattern, item FROM prices WHERE id < 4;"""

QUERIES = {
    "equal values": "SELECT p.n, o.id FROM plain p LEFT JOIN orders o ON p.n::text LIKE '%.' || repeat('0', o.item)",
    "like any": "SELECT o.id FROM orders o WHERE o.note LIKE ANY (SELECT p.pattern FROM prices p)",
    "not like any": "SELECT o.id FROM orders o WHERE NOT o.note ~ ANY (SELECT p.pattern FROM prices p)",
    "like all": "SELECT o.id, o.note NOT LIKE ALL (SELECT p.pattern FROM prices p WHERE p.item = o.item) AS x "
    "FROM orders o",
    "range inner": "SELECT o.id, p.id AS p, p.price FROM orders o JOIN prices p ON p.valid @> o.at",
    "range eq": "SELECT o.id, p.id AS p, p.price FROM orders o JOIN prices p ON p.item = o.item AND "
    "p.valid @> o.at",
    "range left": "SELECT o.id, p.price FROM orders o LEFT JOIN prices p ON p.item = o.item AND o.at <@ "
    "p.valid",
    "range full": "SELECT o.id, p.id AS p FROM orders o FULL JOIN prices p ON p.item = o.item AND o.at <@ "
    "p.valid",
    "overlap self": "SELECT a.id, b.id AS b FROM prices a JOIN prices b ON a.valid && b.valid AND a.id < b.id",
    "exists": "SELECT o.id FROM orders o WHERE EXISTS (SELECT FROM prices p WHERE p.valid @> o.at)",
    "not exists": "SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT FROM prices p WHERE o.note LIKE "
    "p.pattern)",
    "not in": "SELECT o.id FROM orders o WHERE o.item NOT IN (SELECT p.item FROM prices p WHERE p.item "
    "IS NOT NULL AND p.valid @> o.at)",
    "jsonb": "SELECT o.id, p.id AS p FROM orders o JOIN prices p ON o.doc @> p.part",
    "geometry count": "SELECT p.id, count(o.id) AS n FROM prices p LEFT JOIN orders o ON o.spot <@ p.area GROUP "
    "BY p.id",
    "date ts": "SELECT o.id, p.id AS p FROM orders o JOIN prices p ON o.stamp < p.on_day AND o.item = "
    "p.item",
    "scalar where": "SELECT o.id FROM orders o WHERE o.price > (SELECT avg(p.price) FROM prices p WHERE "
    "p.valid @> o.at)",
    "scalar where op": "SELECT o.id FROM orders o WHERE o.note LIKE (SELECT max(p.pattern) FROM prices p)",
    "lateral": "SELECT o.id, q.price FROM orders o CROSS JOIN LATERAL (SELECT p.price FROM prices p "
    "WHERE p.valid @> o.at ORDER BY p.price DESC LIMIT 1) q",
    "keyless left": "SELECT l.at, r.item FROM logs l LEFT JOIN rules r ON l.note LIKE r.pattern",
    "keyless exists": "SELECT l.at FROM logs l WHERE EXISTS (SELECT FROM rules r WHERE l.note LIKE r.pattern)",
    "three": "SELECT o.id, p.id AS p, l.note FROM orders o JOIN prices p ON p.valid @> o.at JOIN logs "
    "l ON l.item = o.item WHERE o.id < 9",
    "two conditions": "SELECT o.id, p.id AS p, r.item FROM orders o JOIN prices p ON p.valid @> o.at JOIN rules "
    "r ON o.note LIKE r.pattern WHERE o.id < 12",
    "not": "SELECT o.id, p.id AS p FROM orders o JOIN prices p ON NOT (o.tags && p.wanted)",
    "nested left": "SELECT o.id, p.id AS p, l.item FROM logs l LEFT JOIN (orders o LEFT JOIN prices p ON "
    "o.at <@ p.valid) ON o.item = l.item",
    "where null ext": "SELECT o.id, p.id AS p FROM orders o LEFT JOIN prices p ON p.item = o.item WHERE p.valid "
    "IS NULL OR p.valid @> o.at",
    "groups left": "SELECT q.item, p.id FROM (SELECT item, min(at) AS at FROM orders GROUP BY item) q LEFT "
    "JOIN prices p ON p.valid @> q.at",
    "word sim": "SELECT o.id, p.id AS p FROM orders o JOIN prices p ON levenshtein(o.note, p.pattern) < 3",
}

CHANGES = [
    """
    UPDATE orders SET at = at + 3, note = 'note 3' WHERE id % 5 = 0;
    DELETE FROM prices WHERE id = 4;
    INSERT INTO prices (id, item, valid, price, pattern, wanted, part, area, on_day)
        VALUES (50, 2, '[2024-01-05,2024-01-09)', 9, '%3', '{t1}', '{"k": 1}', '((0,0),(9,0),(9,9))', '2024-01-03');
    """,
    """
    INSERT INTO orders (id, item, at, note, price, tags, doc, spot, stamp)
        VALUES (60, 2, '2024-01-06', 'note 3', 8, '{t1,t2}', '{"k":1}', '(1,1)', '2024-01-02 12:00');
    DELETE FROM orders WHERE id IN (1, 90);
    UPDATE prices SET valid = NULL, pattern = NULL WHERE id = 7;
    INSERT INTO logs SELECT at, note, item FROM orders WHERE id = 60;
    INSERT INTO logs SELECT at, note, item FROM orders WHERE id = 60;
    INSERT INTO plain VALUES (1.000), (3.0);
    DELETE FROM plain WHERE n::text = '1.00';
    DELETE FROM rules WHERE pattern = 'note 1%';
    """,
    """
    UPDATE prices SET id = id + 100 WHERE id < 3;
    UPDATE orders SET id = id + 200 WHERE id = 60;
    DELETE FROM logs WHERE item = 2;
    INSERT INTO rules VALUES ('[2024-01-01,2024-02-01)', 'note 6', 1), (NULL, NULL, NULL);
    """,
]


def test_a_stream_table_over_pairs_equals_its_query(law: Law) -> None:
    law.change(SETUP)
    law.holds_for(QUERIES, CHANGES)
