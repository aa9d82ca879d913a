"""Equality of types whose equal values print differently, or that travel as text."""

from __future__ import annotations

import pytest
from tests.law.conftest import Law, law

from millstream.algebra.wire import Wire

__all__ = ["law"]  # a fixture

pytestmark = pytest.mark.spark

SETUP = """
    CREATE TYPE spot AS (x int, y text);
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE TABLE a (
        id int PRIMARY KEY, j jsonb, i interval, r int4range, d daterange, n numrange, m int4multirange, p spot,
        moods mood[], times time[], net inet, bits bit(3)
    );
    CREATE TABLE b (LIKE a);
    INSERT INTO a SELECT g, jsonb_build_object('k', g % 3, 'f', (ARRAY[1.5, 2])[g % 2 + 1], 's', '1.50"0'),
        (g % 4) * interval '1 day', int4range(g % 3, g % 3 + 2),
        daterange(date '2024-01-01', date '2024-01-02' + g % 3), numrange(g % 3, g % 3 + 1.5),
        int4multirange(int4range(1, 2 + g % 2), int4range(8, 9)), (g % 2, 'y' || g % 3)::spot,
        ARRAY['sad', 'ok']::mood[], ARRAY[time '10:00' + g % 2 * interval '1 hour'],
        '10.0.0.1'::inet + g % 3, (g % 3)::bit(3)
        FROM generate_series(1, 20) AS g;
    INSERT INTO b SELECT * FROM a WHERE id % 3 > 0;
    INSERT INTO b SELECT * FROM a WHERE id < 4;
    INSERT INTO a (id) VALUES (50), (51);
    INSERT INTO b (id) VALUES (50);
"""
CHANGES = [
    """
    UPDATE a SET j = '{"k": 7}', i = interval '9 days', r = '[5,9)', n = '(1,2]', p = (9, NULL), d = NULL WHERE id < 3;
    DELETE FROM b WHERE id = 5;
    INSERT INTO b (id, j, i, r, n, p) VALUES (60, '{"k": 7}', '9 days', '[5,9)', '(1,2]', (9, NULL))
    """,
    """
    DELETE FROM a WHERE id % 4 = 1;
    UPDATE b SET j = NULL, r = 'empty' WHERE id = 7;
    INSERT INTO a (id, j) VALUES (70, '[1, "a"]');
    INSERT INTO a (id, p) VALUES (71, (NULL, NULL))
    """,
]
TYPES = ("j", "i", "r", "d", "n", "m", "p", "moods", "times", "net", "bits")
QUERIES = {
    f"groups by {c}": f"SELECT {c}, count(*) AS c, min(id) AS least FROM a GROUP BY {c}"
    for c in TYPES
}
QUERIES |= {
    "distinct": "SELECT DISTINCT j, r FROM a",
    "distinct of all": f"SELECT DISTINCT {', '.join(TYPES)} FROM b",
    "union": "SELECT j FROM a UNION SELECT j FROM b",
    "except": "SELECT i, r FROM a EXCEPT SELECT i, r FROM b",
    "intersect all": "SELECT n FROM a INTERSECT ALL SELECT n FROM b",
    "count distinct": "SELECT r, count(DISTINCT j) AS c FROM a GROUP BY r",
    "joined by jsonb": "SELECT a.id, b.id AS b FROM a JOIN b ON a.j = b.j",
    "joined by a range": "SELECT a.id, b.id AS b FROM a LEFT JOIN b ON a.r = b.r AND a.i = b.i",
    "in": "SELECT id FROM a WHERE p IN (SELECT p FROM b)",
    "not exists": "SELECT id FROM a WHERE NOT EXISTS (SELECT FROM b WHERE b.n = a.n)",
    "window": "SELECT id, row_number() OVER (PARTITION BY j ORDER BY id) AS n FROM a",
    "distinct on": "SELECT DISTINCT ON (i) i, id FROM a ORDER BY i, id",
    "rollup": "SELECT r, p, count(*) AS n FROM a GROUP BY ROLLUP (r, p)",
}
# Equal values that print differently: only which rows share a group is asked.
UNLIKE = """
    CREATE TABLE u (id int PRIMARY KEY, j jsonb, i interval, n numrange);
    INSERT INTO u VALUES (1, '{"a": 1.0}', '1 day', '[1,2)'), (2, '{"a": 1}', '24 hours', '[1.0,2.00)'),
        (3, '[1.50, "x1.0"]', '1 mon', '(,1.0)'), (4, '[1.5, "x1.0"]', '30 days', '(,1)'),
        (5, '[1.5, "x1.00"]', '29 days', 'empty'), (6, '10', '-1 day 24:00:00', NULL), (7, '1', '00:00:00', 'empty');
"""
OF_UNLIKE = {
    f"{what} {c}": query.format(c=c)
    for c in ("j", "i", "n")
    for what, query in {
        "groups": "SELECT count(*) AS n, min(id) AS least FROM u GROUP BY {c}",
        "joined": "SELECT x.id, y.id AS y FROM u x JOIN u y ON x.{c} = y.{c}",
        "partitions": "SELECT id, count(*) OVER (PARTITION BY {c}) AS n FROM u",
    }.items()
}
OF_UNLIKE["shown"] = "SELECT j::text AS j FROM u WHERE id IN (1, 3, 5, 6) GROUP BY j"


def test_groups_sets_and_joins_share_the_equality_of_postgresql(law: Law) -> None:
    law.change(SETUP)
    law.holds_for(QUERIES, CHANGES)


def test_equal_values_that_print_differently_are_one_group(law: Law) -> None:
    law.change(UNLIKE)
    law.holds_for(
        OF_UNLIKE,
        [
            "DELETE FROM u WHERE id = 1; "
            "INSERT INTO u VALUES (8, '{\"a\": 1.00}', '1439 minutes 60 seconds', '[1.000,2)')",
            "UPDATE u SET j = '[1.500, \"x1.0\"]' WHERE id = 4; DELETE FROM u WHERE id = 6",
        ],
    )


@pytest.mark.parametrize("what", ["groups j", "groups i", "joined n"])
def test_the_law_notices_keys_in_the_form_in_which_they_are_written(
    law: Law, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    law.waiting(
        UNLIKE,
        {"st": OF_UNLIKE[what]},
        ["INSERT INTO u VALUES (8, '{\"a\": 1.00}', '24:00', '[1.000,2)')"],
    )
    monkeypatch.setattr(Wire, "key_sql", Wire.encode_sql)
    assert law.broken_by("st") is not None
