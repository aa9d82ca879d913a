"""A user's trigger on one stream table may write to a source of another, in the transaction of the cut itself.

The transaction sees those rows although its snapshot, the new frontier, does not hold them: read now, they would be
read again. So a table with changes of its own to read waits for another cut, which comes at once.
"""

from __future__ import annotations

import pytest

from millstream.client import Millstream
from millstream.store.connection import Connection
from millstream.testing import oracle

# In the order in which they are refreshed.
QUERIES = {
    "first": "SELECT id, value FROM items",
    "second": "SELECT item, count(*) AS n FROM journal GROUP BY item",
    "third": "SELECT j.item, i.value FROM journal AS j JOIN items AS i ON i.id = j.item",
}
SETUP = (
    "CREATE TABLE items (id integer PRIMARY KEY, value integer)",
    "CREATE TABLE journal (item integer)",
    "INSERT INTO items VALUES (1, 1)",
)
TRIGGER = (
    "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN INSERT INTO journal VALUES (NEW.id); RETURN NEW; END $$",
    "CREATE TRIGGER note AFTER INSERT OR UPDATE ON first FOR EACH ROW EXECUTE FUNCTION note()",
)


@pytest.mark.spark
def test_what_a_trigger_on_a_stream_table_writes_is_counted_once(ms: Millstream, conn: Connection) -> None:
    for statement in SETUP:
        conn.execute(statement)
    for name, query in QUERIES.items():
        ms.create_stream_table(name, query)
    for statement in TRIGGER:
        conn.execute(statement)
    for number in range(2, 6):
        conn.execute("INSERT INTO items VALUES (%s, 7)", (number,))
        conn.execute("UPDATE items SET value = value + 1 WHERE id = %s", (number - 1,))
        assert _actions(ms) == {"first": "DIFFERENTIAL", "second": "NO_DATA", "third": "DIFFERENTIAL"}
        # The trigger's rows were committed with the first cut; the second table meets them now.
        assert _actions(ms) == {"first": "NO_DATA", "second": "DIFFERENTIAL", "third": "NO_DATA"}
        for name, query in QUERIES.items():
            oracle.check(conn, query, name)


def _actions(ms: Millstream) -> dict[str, str]:
    return {report.name: report.action for report in ms.refresh_all()}
