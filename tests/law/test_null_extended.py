"""Columns of a null-extended side are NULL where that side has no match: `null_extended.sql`,
through changes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.law.conftest import Law

pytestmark = pytest.mark.spark

SETUP = """
    CREATE TABLE k (id int PRIMARY KEY, f boolean, arr int[]);
    CREATE TABLE t (id int PRIMARY KEY, n int, s text, b boolean);
    CREATE TABLE u (id int PRIMARY KEY, t int, v int);
    CREATE TABLE e (id int PRIMARY KEY, n int);
    CREATE VIEW vt AS SELECT id, n, true AS hit, 'c' AS c FROM t;
    INSERT INTO k VALUES (1, true, '{1,2}'), (2, false, '{}'), (3, NULL, NULL);
    INSERT INTO t VALUES (1, 1, 'x', true), (2, 1, NULL, NULL), (4, 4, 'y', false);
    INSERT INTO u VALUES (1, 1, 5), (2, 9, 6), (3, 4, NULL);
"""
CHANGES = (
    "INSERT INTO t VALUES (5, 2, 'q', true); DELETE FROM t WHERE id = 1; INSERT INTO e VALUES (1, 1)",
    "DELETE FROM t WHERE id <> 5; UPDATE u SET t = 5; DELETE FROM e; INSERT INTO k VALUES (9, true, '{9}')",
)
QUERIES = dict(
    re.findall(
        r"-- name: (.+)\n((?:.+\n)+)", Path(__file__).with_name("null_extended.sql").read_text()
    )
)


def test_columns_of_a_null_extended_side_are_null_where_it_has_no_match(law: Law) -> None:
    """A constant of that side named no table, so it was computed beside any and showed in every
    row.

    `k LEFT JOIN (SELECT n, true AS hit FROM t) a` was true for every k; a FULL JOIN was refused by
    an inner error.
    """
    law.change(SETUP)
    law.holds_for(QUERIES, CHANGES)
