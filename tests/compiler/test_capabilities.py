"""The table of what is kept and what is refused cannot lie: every example in it is planned."""

from __future__ import annotations

import pytest
from docs.capabilities import KEPT, KINDS, REFUSED, Kept, Refused, kind_of

from millstream.compiler.server.check import REFUSALS
from millstream.compiler.server.plan_query import plan_query
from millstream.errors import QueryError
from millstream.postgres.connection import Connection

# PostgreSQL lets no view have it.
WITHOUT_EXAMPLE = {"a data-modifying statement in WITH"}


@pytest.mark.parametrize("row", KEPT, ids=lambda row: row.construct)
def test_each_capability_is_planned_with_the_blocks_that_its_row_names(
    shop: Connection, row: Kept
) -> None:
    assert tuple(map(kind_of, plan_query(shop, row.example).blocks)) == row.blocks


@pytest.mark.notimpl
@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.construct)
def test_what_is_said_to_be_refused_is_refused_with_its_code(
    shop: Connection, row: Refused
) -> None:
    with pytest.raises(QueryError) as refusal:
        plan_query(shop, row.example)
    assert refusal.value.code == row.code
    assert row.says in refusal.value.message


def test_every_refusal_of_the_check_and_every_kind_of_block_is_in_the_table() -> None:
    told = [row.says for row in REFUSED]
    refused = {one.what for one in REFUSALS} - WITHOUT_EXAMPLE
    assert [what for what in refused if not any(words in what for words in told)] == []
    assert {kind for row in KEPT for kind in row.blocks} == set(KINDS)
