"""Texts of pg_get_viewdef that the server does not read again are corrected."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.compiler.server.viewdef import readable_text, recursive_columns

PRINTED = """ WITH RECURSIVE r(n) AS (
         SELECT 1
        UNION ALL
         SELECT (r_1.n + 1)
           FROM r r_1(n, again, path)
          WHERE (r_1.n < 9)
        ) CYCLE n SET again TO 'Y'::text DEFAULT 'N'::text USING path
 SELECT r.n,
    r.again
   FROM r r(n, again, path);"""


def test_an_ordinary_text_is_not_touched() -> None:
    text = " SELECT  t.a,\n    'b'::text AS b\n   FROM t;"
    assert readable_text(text) is text


def test_parentheses_that_the_server_drops_are_removed_everywhere() -> None:
    assert (
        readable_text("SELECT (((a >= 1) AND (a <= 2)) AND b)")
        == "SELECT ((a >= 1) AND (a <= 2) AND b)"
    )


def test_aliases_of_a_recursive_table_name_its_own_columns_only() -> None:
    tree = parsed(readable_text(PRINTED))
    tables = [table for table in tree.find_all(exp.Table) if table.name == "r"]
    assert [[column.name for column in table.args["alias"].columns] for table in tables] == [
        ["n"],
        ["n"],
    ]


def test_the_values_of_a_cycle_mark_have_no_cast() -> None:
    text = readable_text(PRINTED)
    assert "'Y'::text" not in text
    assert "CAST" not in text


def test_a_corrected_text_is_not_corrected_again() -> None:
    once = readable_text(PRINTED)
    assert readable_text(once) == once


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("r AS (SELECT 1 AS a, x.b FROM x UNION SELECT 1, 2)", ["a", "b"]),
        ("r(p) AS (SELECT 1 AS a, x.b FROM x UNION SELECT 1, 2)", ["p", "b"]),
        ("r AS (VALUES (1, 2) UNION SELECT 1, 2)", ["column1", "column2"]),
    ],
)
def test_the_columns_of_a_recursion_are_named_by_its_alias_and_then_by_its_base(
    query: str, names: list[str]
) -> None:
    cte = parsed(f"WITH RECURSIVE {query} SELECT 1").find(exp.CTE)
    assert cte is not None
    assert recursive_columns(cte) == names
