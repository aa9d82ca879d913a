"""Every construct that is refused is refused by a query, at the place where it stands."""

from __future__ import annotations

import pytest

from millstream.compiler.server.check import REFUSALS
from millstream.compiler.server.plan_query import plan_query
from millstream.errors import Unsupported
from millstream.postgres.connection import Connection

# What is refused -> a query that has it, and the word that the error points at.
REFUSED = {
    "FOR UPDATE or FOR SHARE": ("SELECT id FROM t FOR UPDATE", "FOR"),
    "TABLESAMPLE": ("SELECT id FROM t TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
    "current_user and its like": ("SELECT id FROM t WHERE current_user = 'me'", "current_user"),
}
# PostgreSQL lets no view have it.
NOT_IN_A_VIEW = {"a data-modifying statement in WITH"}


@pytest.mark.notimpl
@pytest.mark.parametrize("what", REFUSED)
def test_a_construct_is_refused_where_it_stands(planner: Connection, what: str) -> None:
    query, word = REFUSED[what]
    with pytest.raises(Unsupported) as refusal:
        plan_query(planner, query)
    assert what in refusal.value.message
    assert (bool(refusal.value.detail), bool(refusal.value.hint)) == (True, True)
    assert refusal.value.position == query.upper().index(word.upper()) + 1


def test_every_refusal_has_its_query() -> None:
    assert {refusal.what for refusal in REFUSALS} == set(REFUSED) | NOT_IN_A_VIEW


def test_a_word_in_a_string_or_a_name_is_not_a_construct(planner: Connection) -> None:
    query = """SELECT 'DISTINCT' AS "LIMIT", x AS "over" FROM t -- LEFT JOIN"""
    assert plan_query(planner, query).block.outputs[0].column.name == "LIMIT"
