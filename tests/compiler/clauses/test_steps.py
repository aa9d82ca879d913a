"""Clauses that are not built together are written as two SELECTs."""

from __future__ import annotations

import re

import pytest

from millstream.algebra.dialect import parsed, printed
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.clauses.steps import split_steps


def split(text: str) -> str:
    return re.sub(
        r'"__ms_step_\d+"', "q", printed(split_steps(parsed(text), Aggregates(frozenset)))
    )


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (
            "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, c DESC LIMIT 3",
            'SELECT q."c0" AS "a", q."c1" AS "b" FROM (SELECT DISTINCT ON (a) a AS "c0", b AS "c1", c AS "c2" '
            'FROM t ORDER BY a, c DESC) AS q ORDER BY q."c0", q."c2" DESC LIMIT 3',
        ),
        (
            "WITH w AS (SELECT 1) SELECT DISTINCT a, COUNT(*) AS n FROM t GROUP BY ROLLUP (a) HAVING COUNT(*) > 1",
            'WITH w AS (SELECT 1) SELECT DISTINCT q."c0" AS "a", q."c1" AS "n" FROM (SELECT a AS "c0", '
            'COUNT(*) AS "c1" FROM t GROUP BY ROLLUP (a) HAVING COUNT(*) > 1) AS q',
        ),
        (
            "SELECT lag(SUM(b), 1) OVER (PARTITION BY a ORDER BY MAX(c) ROWS 1 PRECEDING) AS l FROM t "
            "GROUP BY CUBE (a)",
            'SELECT lag(q."c0", 1) OVER (PARTITION BY q."c1" ORDER BY q."c2" ROWS 1 PRECEDING) AS "l" '
            'FROM (SELECT SUM(b) AS "c0", a AS "c1", MAX(c) AS "c2" FROM t GROUP BY CUBE (a)) AS q',
        ),
        (
            "SELECT COUNT(a) AS n, (SELECT 1) AS k, b FROM t GROUP BY (SELECT 1), id",
            'SELECT COUNT(q."c0") AS "n", q."c1" AS "k", q."c2" AS "b" FROM (SELECT a AS "c0", (SELECT 1) AS "c1", '
            'b AS "c2", id AS "c3" FROM t) AS q GROUP BY q."c1", q."c3", q."c2"',
        ),
    ],
)
def test_the_first_clause_is_below_and_the_others_are_above(text: str, steps: str) -> None:
    assert split(text) == steps


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b",
        "SELECT a, COUNT(*) FROM t GROUP BY ROLLUP (a) ORDER BY a",
        "SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY a LIMIT 3",
        "SELECT (SELECT MAX(u.b) FROM u WHERE u.a = t.a), (SELECT 1) FROM t GROUP BY (SELECT 1), t.a",
    ],
)
def test_one_step_stays_one(text: str) -> None:
    assert split(text) == text
