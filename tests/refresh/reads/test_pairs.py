"""The queries that find pairs."""

from __future__ import annotations

from psycopg import sql
from tests.compiler.blocks.test_pairs import PREFIX, joined, paired

from millstream.refresh.reads.pairs import joined_sql


def test_pairs_are_joined_by_the_condition_and_sent_by_their_names() -> None:
    _, store = paired(joined(PREFIX))
    (block,) = store.blocks
    items = [sql.SQL("one AS t"), sql.SQL("other AS u")]
    query = joined_sql(block, items, sql.SQL("- t.n"), [sql.SQL("u.y > 'a'")])
    assert query.as_string().replace('"', "") == (
        "SELECT (t.id), (u.id), (- t.n)::bigint FROM one AS t CROSS JOIN other AS u "
        "WHERE (starts_with(t.x, u.y)) AND (u.y > 'a')"
    )
