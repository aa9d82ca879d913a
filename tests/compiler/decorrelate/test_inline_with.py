"""WITH queries that refer to outer columns are inlined."""

from __future__ import annotations

import pytest

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.expr import Ref
from millstream.compiler.decorrelate.inline_with import inline_correlated_with
from millstream.compiler.decorrelate.scope import Scope
from millstream.errors import Unsupported

OUTER = Scope().with_columns("t", ["a"], [Ref("t", "a")])


def inlined(text: str) -> str:
    return printed(inline_correlated_with(parsed(text), OUTER))


def test_a_correlated_with_query_is_written_where_it_is_used() -> None:
    text = inlined(
        "WITH x AS (SELECT u.b FROM u WHERE u.a > t.a) SELECT count(*) FROM x JOIN x AS y ON x.b = y.b"
    )
    assert "WITH" not in text
    assert text.count("u.a > t.a") == 2
    assert 'AS "x"' in text
    assert 'AS "y"' in text


def test_its_column_names_are_kept_unless_the_use_renames_them() -> None:
    text = inlined("WITH x (p, q) AS (SELECT u.a, t.a FROM u) SELECT * FROM x AS y (r)")
    assert text.replace('"', "").endswith("AS y(r, q)")


def test_a_with_query_over_an_inlined_one_is_inlined_with_it() -> None:
    """Planning it failed (MS902): the second query still named the first, which was gone."""
    text = inlined(
        "WITH x AS (SELECT u.b FROM u WHERE u.a > t.a), y AS (SELECT x.b FROM x WHERE x.b > t.a) SELECT y.b FROM y"
    )
    assert "WITH" not in text
    assert "FROM x" not in text
    assert text.count("u.a > t.a") == 1


def test_joins_of_a_use_in_parentheses_stay() -> None:
    """The parser hangs them on the table that is replaced."""
    text = inlined(
        "WITH x AS (SELECT u.b FROM u WHERE u.a > t.a) "
        "SELECT count(*) FROM (x JOIN w ON w.b = x.b) JOIN x AS y ON y.b = w.b"
    ).replace('"', "")
    assert "AS x JOIN w ON w.b = x.b" in text
    assert "AS y ON y.b = w.b" in text
    assert text.count("u.a > t.a") == 2


def test_an_inner_with_query_of_the_same_name_is_another_one() -> None:
    """The name was replaced there too, and the rows were those of the outer query."""
    text = inlined(
        "WITH x AS (SELECT t.a) SELECT q.b FROM (WITH x AS (SELECT u.b FROM u) SELECT x.b FROM x) AS q, x"
    )
    assert "FROM (WITH x AS (SELECT u.b FROM u) SELECT x.b FROM x) AS q" in text
    assert text.replace('"', "").endswith(", (SELECT t.a) AS x")


def test_an_inner_with_query_reads_the_outer_one_of_its_name() -> None:
    text = inlined(
        "WITH x AS (SELECT t.a) SELECT q.a FROM (WITH x AS (SELECT x.a FROM x) SELECT x.a FROM x) AS q"
    )
    assert text.count("SELECT t.a") == 1
    assert text.replace('"', "").endswith(
        "(WITH x AS (SELECT x.a FROM (SELECT t.a) AS x) SELECT x.a FROM x) AS q"
    )


def test_a_name_means_the_same_query_where_an_inlined_one_is_written() -> None:
    """Its tables were taken for the WITH queries around the use that have their names: wrong rows."""
    text = inlined(
        "WITH y AS (SELECT u.b FROM u), x AS (SELECT y.b, t.a FROM y) "
        "SELECT q.b FROM (WITH y AS (SELECT 100 AS c) SELECT x.b, y.c FROM x, y) AS q"
    ).replace('"', "")
    assert (
        "(WITH y_1 AS (SELECT 100 AS c) SELECT x.b, y.c FROM (SELECT y.b, t.a FROM y) AS x, y_1 AS y) AS q"
        in text
    )
    text = inlined(
        "WITH x AS (SELECT y.b, t.a FROM y), y AS (SELECT u.b FROM u) SELECT x.b FROM x, y"
    ).replace('"', "")
    assert (
        text
        == "WITH y_1 AS (SELECT u.b FROM u) SELECT x.b FROM (SELECT y.b, t.a FROM y) AS x, y_1 AS y"
    )


def test_a_with_query_before_an_inlined_one_reads_the_outer_one_of_its_name() -> None:
    """The name was replaced there too: wrong rows."""
    text = inlined(
        "WITH y AS (SELECT x.b FROM x), x AS (SELECT t.a) SELECT x.a, y.b FROM x, y"
    ).replace('"', "")
    assert text == "WITH y AS (SELECT x.b FROM x) SELECT x.a, y.b FROM (SELECT t.a) AS x, y"


def test_other_with_queries_stay_out() -> None:
    text = "WITH x AS (SELECT u.b FROM u) SELECT x.b FROM x WHERE x.b > t.a"
    assert inlined(text) == printed(parsed(text))


def test_a_recursive_one_is_refused() -> None:
    with pytest.raises(Unsupported, match="recursive query"):
        inlined("WITH RECURSIVE x AS (SELECT t.a UNION SELECT x.a FROM x) SELECT x.a FROM x")
