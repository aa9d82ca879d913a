"""Recursive queries end, and have the columns that they say."""

from __future__ import annotations

from sqlglot import exp
from tests.testing.queries.conftest import makers

from millstream.algebra.dialect import parsed
from millstream.testing.queries.recursions import recursive


def test_by_union_all_the_step_is_limited_to_a_depth() -> None:
    for m in makers(depth=0):
        text, _ = recursive(m)
        assert text.startswith("WITH RECURSIVE ")
        assert " UNION ALL " not in text or ".e0 < 2" in text


def test_without_a_depth_it_adds_no_path_since_union_would_not_end() -> None:
    texts = [recursive(m)[0] for m in makers(depth=0)]
    assert all(" CYCLE " not in text for text in texts if ".e0 < 2" not in text)
    assert any(" CYCLE " in text for text in texts)
    assert any(" SEARCH " in text for text in texts)


def test_both_terms_have_the_same_number_of_columns() -> None:
    for m in makers(depth=0):
        text, columns = recursive(m)
        cte = parsed(text).find(exp.CTE)
        assert cte is not None
        base, step = cte.this.this, cte.this.expression
        assert len(base.expressions) == len(step.expressions) <= len(columns)
