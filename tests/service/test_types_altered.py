"""Users alter the types of captured columns: labels are renamed and added, domains get constraints.

The bug: a group's id is the hash of its key's text. After `ALTER TYPE ... RENAME VALUE` a full
refresh found the group under a new id, and took the stored group of the old id, which by then had
the same key, for one that had vanished: the group was missing, or every refresh failed with "MERGE
command cannot affect row a second time".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import psycopg
import pytest

from millstream import Millstream
from millstream.capture.transition import transitions
from millstream.capture.transition.context import TransitionMemory
from millstream.catalog import sources
from millstream.errors import SourceChanged
from millstream.testing import oracle

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TYPE mood AS ENUM ('a', 'b', 'c', 'd');
    CREATE DOMAIN size AS int CHECK (VALUE >= 0);
    CREATE TABLE s (id int PRIMARY KEY, m mood, z size, v int);
    CREATE TABLE o (m mood, z size, name text);
    ALTER TABLE s REPLICA IDENTITY FULL;
    ALTER TABLE o REPLICA IDENTITY FULL;
    INSERT INTO s SELECT i, (ARRAY['a', 'b', 'c', 'd', NULL])[1 + i % 5]::mood, i % 4, i
    FROM generate_series(1, 30) AS i;
    INSERT INTO o VALUES ('a', 0, 'first'), ('b', 1, 'second'), ('b', 2, 'third'), (NULL, NULL, 'none');
"""
# A type in every place that a query has for it.
PLACES = {
    "group_key": "SELECT m, z, count(*) AS n, max(v) AS x FROM s GROUP BY m, z",
    "hidden_key": "SELECT count(*) AS n, sum(v) AS x FROM s GROUP BY m",
    "plain": "SELECT id, m, z FROM s",
    "bag": "SELECT m, z FROM s",
    "argument": "SELECT v % 3 AS g, max(m) AS last, array_agg(m ORDER BY id) AS each, "
    "count(DISTINCT m) AS n, sum(z) AS t FROM s GROUP BY v % 3",
    "join_key": "SELECT s.id, s.m, o.name FROM s JOIN o ON o.m = s.m AND o.z <= s.z",
    "distinct_rows": "SELECT DISTINCT m, z FROM s",
    "partitioned": "SELECT id, m, row_number() OVER (PARTITION BY m, z ORDER BY id) AS place FROM s",
    "set_operation": "SELECT m, z FROM s EXCEPT SELECT m, z FROM o",
    "nested": "SELECT n, count(*) AS groups, max(m) AS last "
    "FROM (SELECT m, count(*) AS n FROM s GROUP BY m) AS q GROUP BY n",
    "chain": "SELECT m, sum(n) AS n FROM group_key GROUP BY m",
    "literal": "SELECT m, count(*) AS n FROM s WHERE m <> 'd' OR z > 2::size GROUP BY m",
}
# How the changes of a source come is the same for all; these are kept from WAL, too.
FROM_WAL = ("group_key", "join_key", "chain")
# The canonical text of these does not name a type.
NOT_NAMED = ("group_key", "bag", "join_key", "partitioned")
CHANGE = """
    UPDATE s SET v = v + 1 WHERE id % 7 = 1;
    UPDATE s SET m = (SELECT m FROM s WHERE id = 3) WHERE id IN (1, 2);
    DELETE FROM s WHERE id = (SELECT min(id) FROM s WHERE id > 3);
    INSERT INTO s SELECT 2 * max(id), min(m), 1, 5 FROM s;
    INSERT INTO o SELECT max(m), 1, 'more' FROM s;
"""
ALTERATIONS = {
    "a label": "ALTER TYPE mood RENAME VALUE 'b' TO 'bb'",
    "a label, and rows change": "ALTER TYPE mood RENAME VALUE 'c' TO 'cc'; " + CHANGE,
    "two labels change places": "ALTER TYPE mood RENAME VALUE 'a' TO 'x'; ALTER TYPE mood RENAME VALUE 'cc' TO 'a'; "
    "ALTER TYPE mood RENAME VALUE 'x' TO 'cc'; " + CHANGE,
    "a label is added": "ALTER TYPE mood ADD VALUE 'e' BEFORE 'bb'",
    "the domain gets a constraint": "ALTER DOMAIN size ADD CONSTRAINT small CHECK (VALUE < 1000); "
    "UPDATE s SET m = 'e', z = 999 WHERE id = 3",
}


@pytest.fixture
def writer(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


@pytest.mark.parametrize("capture", ["trigger", "wal"])
def test_every_place_of_a_type_stays_exact_whatever_becomes_of_the_type(
    ms: Millstream, writer: psycopg.Connection, capture: str
) -> None:
    writer.execute(TABLES)
    places = tuple(PLACES) if capture == "trigger" else FROM_WAL
    for name in places:
        ms.create_stream_table(
            name,
            PLACES[name],
            schedule="1h",
            cdc_mode="trigger" if capture == "trigger" else None,
        )
    if capture == "wal":
        move_to_wal(ms)
    for what, statement in ALTERATIONS.items():
        writer.execute(statement)
        assert wrong(ms, {"REINITIALIZE", "DIFFERENTIAL", "NO_DATA"}, places) == {}, what
        writer.execute(CHANGE)
        assert wrong(ms, {"DIFFERENTIAL", "NO_DATA"}, places) == {}, what


def move_to_wal(ms: Millstream) -> None:
    deadline = time.monotonic() + 60
    while {source.name for source in sources.every(ms.app.conn) if source.mode == "WAL"} < {
        "s",
        "o",
    }:
        assert time.monotonic() < deadline, sources.every(ms.app.conn)
        ms.app.steps = TransitionMemory()
        transitions.advance(ms.app)


def wrong(
    ms: Millstream, allowed: set[str], names: Sequence[str] = tuple(PLACES)
) -> dict[str, str]:
    """Refresh all; return what is not as PostgreSQL has it, or was not done in a way that is
    allowed.
    """
    reports = ms.refresh_all()
    found = {
        report.name: f"{report.action} {report.reason}"
        for report in reports
        if report.action not in allowed
    }
    for name in names:
        try:
            oracle.check(ms.app.conn, PLACES[name], name)
        except AssertionError as error:
            found[name] = found.get(name, "") + str(error)[:300]
    return found


def test_types_that_get_other_names_are_followed(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """Every refresh failed with "type does not exist": plans had the old name."""
    writer.execute(TABLES)
    for name in NOT_NAMED:
        ms.create_stream_table(name, PLACES[name], schedule="1h")
    writer.execute('ALTER TYPE mood RENAME TO "Mood"; ALTER DOMAIN size RENAME TO large; ' + CHANGE)
    assert wrong(ms, {"REINITIALIZE"}, NOT_NAMED) == {}
    writer.execute("CREATE SCHEMA aside; ALTER DOMAIN large SET SCHEMA aside; " + CHANGE)
    assert wrong(ms, {"REINITIALIZE", "DIFFERENTIAL"}, NOT_NAMED) == {}
    writer.execute(CHANGE)
    assert wrong(ms, {"DIFFERENTIAL"}, NOT_NAMED) == {}


# The query names these: by its text there is nothing of that name any more. To and back.
RENAMED = {
    "a label": (
        "ALTER TYPE mood RENAME VALUE 'd' TO 'dd'",
        "ALTER TYPE mood RENAME VALUE 'dd' TO 'd'",
    ),
    "a type": ("ALTER DOMAIN size RENAME TO large", "ALTER DOMAIN large RENAME TO size"),
    "a schema": (
        "CREATE SCHEMA aside; ALTER TYPE mood SET SCHEMA aside",
        "ALTER TYPE aside.mood SET SCHEMA public",
    ),
}


def test_what_the_query_itself_names_is_an_error_until_it_has_its_name_again(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """A stream table is the text of its query, which nobody rewrites: until then its rows stay as
    they were.
    """
    writer.execute(TABLES)
    ms.create_stream_table("literal", PLACES["literal"], schedule="1h")
    for what, (there, back) in RENAMED.items():
        writer.execute(there + "; " + CHANGE)
        with pytest.raises(SourceChanged, match="no longer valid") as raised:
            ms.refresh("literal")
        assert "Restore what the query needs in the source" in raised.value.hint
        writer.execute(back)
        assert ms.refresh("literal").action in ("DIFFERENTIAL", "REINITIALIZE"), what
        oracle.check(ms.app.conn, PLACES["literal"], "literal")
    # The other half of the hint.
    writer.execute(RENAMED["a type"][0])
    ms.drop_stream_table("literal")
    ms.create_stream_table("literal", PLACES["literal"].replace("size", "large"))
    oracle.check(ms.app.conn, PLACES["literal"].replace("size", "large"), "literal")
