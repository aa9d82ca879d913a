"""Rows written are rows planned, whatever users have hung on or altered of the stream table's own
table.
"""

from __future__ import annotations

from typing import NamedTuple

import psycopg
import pytest

from millstream.client import Millstream
from millstream.errors import TargetAltered, TriggerInterferes
from millstream.testing import oracle

pytestmark = pytest.mark.spark

# By how rows are told apart: a key, a key that may be NULL, a row id, a single row.
QUERIES = {
    "key": "SELECT id, v FROM t",
    "nullable key": "SELECT g, sum(v) AS v FROM t GROUP BY g",
    "row id": "SELECT v FROM t",
    "single row": "SELECT sum(v) AS v FROM t",
}
CHANGES = (
    "INSERT INTO t VALUES (20, 7, 5), (21, NULL, 6)",
    "UPDATE t SET v = v + 1 WHERE id IN (1, 20) OR g IS NULL",
    "DELETE FROM t WHERE id = 20",
)


@pytest.fixture
def writer(ms: Millstream, writer: psycopg.Connection) -> psycopg.Connection:
    writer.execute("CREATE TABLE t (id int PRIMARY KEY, g int, v int)")
    writer.execute("INSERT INTO t SELECT i, nullif(i % 3, 0), i FROM generate_series(1, 9) AS i")
    return writer


def hang(writer: psycopg.Connection, body: str, events: str = "INSERT OR UPDATE OR DELETE") -> None:
    """Put a BEFORE ROW trigger on the stream table."""
    writer.execute(
        f"CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$".encode()
    )
    make = f'CREATE TRIGGER "Meddle" BEFORE {events} ON st FOR EACH ROW EXECUTE FUNCTION meddle()'
    writer.execute(make.encode())


MEDDLING = {
    "changes a value": "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; NEW.v := NEW.v + 1; RETURN NEW;",
    "drops a row": "RETURN NULL;",
    "keeps the old row": "IF TG_OP = 'UPDATE' THEN RETURN OLD; END IF; RETURN NULL;",
    "makes it NULL": "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; NEW.v := NULL; RETURN NEW;",
}


@pytest.mark.parametrize("body", MEDDLING.values(), ids=list(MEDDLING))
@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_a_trigger_that_changes_or_drops_rows_is_refused_by_name(
    ms: Millstream, writer: psycopg.Connection, query: str, body: str
) -> None:
    """A BEFORE ROW trigger that changed NEW was believed: the table was wrong, and only verify
    told.
    """
    ms.create_stream_table("st", query)
    hang(writer, body)
    before = sorted(writer.execute("TABLE st").fetchall(), key=str)
    for change in CHANGES:
        writer.execute(change.encode())
        with pytest.raises(TriggerInterferes) as caught:
            ms.refresh("st")
        assert '"Meddle"' in caught.value.detail
        assert sorted(writer.execute("TABLE st").fetchall(), key=str) == before
    for remedy in caught.value.hint.partition("with: ")[2].split("; "):
        writer.execute(remedy.encode())
    ms.refresh("st")
    oracle.check(ms.app.conn, query, "public.st")


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_a_trigger_that_leaves_rows_as_they_are_is_no_trouble(
    ms: Millstream, writer: psycopg.Connection, query: str
) -> None:
    ms.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    hang(writer, "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW;")
    # It may have fired in a refresh that had not seen it: once, the rows are computed whole.
    report = ms.refresh("st")
    assert (report.action, report.reason) == ("REINITIALIZE", "TRIGGERS_CHANGED")
    for change in CHANGES:
        writer.execute(change.encode())
        assert ms.refresh("st").action == "DIFFERENTIAL"
        oracle.check(ms.app.conn, query, "public.st")


class Alteration(NamedTuple):
    """What an owner does to the table of a stream table, what is told, and what takes it back."""

    ddl: str
    told: str
    back: str = ""


ALTERATIONS = {
    "column dropped": Alteration(
        "ALTER TABLE st DROP COLUMN v", 'Column "v" of type integer is missing', "ALTER TABLE st ADD COLUMN v int"
    ),
    "column renamed": Alteration(
        "ALTER TABLE st RENAME COLUMN v TO w", 'Column "v" of type integer is missing',
        "ALTER TABLE st RENAME COLUMN w TO v",
    ),
    "column retyped": Alteration(
        "ALTER TABLE st ALTER COLUMN v TYPE text USING 'x'", 'Column "v" has type text, not integer',
        "ALTER TABLE st ALTER COLUMN v TYPE int USING 0",
    ),
    "column swapped for another": Alteration(
        "ALTER TABLE st RENAME COLUMN v TO w; ALTER TABLE st ADD COLUMN v text",
        'Column "v" has type text, not integer',
        "ALTER TABLE st DROP COLUMN v, ADD COLUMN v int",
    ),
    "generated column": Alteration(
        "ALTER TABLE st DROP COLUMN v; ALTER TABLE st ADD COLUMN v int GENERATED ALWAYS AS (id) STORED",
        "Column v is generated or an identity column", "ALTER TABLE st DROP COLUMN v; ALTER TABLE st ADD COLUMN v int",
    ),
    "rule": Alteration("CREATE RULE r AS ON INSERT TO st DO INSTEAD NOTHING", "Rule r rewrites what is written to it"),
    "rule besides": Alteration("CREATE RULE r AS ON UPDATE TO st DO ALSO NOTIFY x", "Rule r rewrites"),
    "child": Alteration(
        "CREATE TABLE kid () INHERITS (st); INSERT INTO kid VALUES (99, 99)", "Table public.kid inherits"
    ),
}  # fmt: skip


@pytest.mark.parametrize("again", [False, True], ids=["same process", "new process"])
@pytest.mark.parametrize("case", ALTERATIONS.values(), ids=list(ALTERATIONS))
def test_the_error_for_an_altered_table_has_a_hint_that_works(
    ms: Millstream, writer: psycopg.Connection, case: Alteration, again: bool
) -> None:
    """A dropped or retyped column was the server's own error, a swapped one was filled with NULLs."""
    query = "SELECT id, v FROM t"
    ms.create_stream_table("st", query, schedule="continuous")
    writer.execute(case.ddl.encode())
    writer.execute("INSERT INTO t VALUES (30, 1, 30)")
    if again:
        ms.app.forget(ms.app.named("st").id)
    assert ms.tick() == []
    with pytest.raises(TargetAltered) as caught:
        ms.refresh("st")
    assert case.told in caught.value.detail
    writer.execute((case.back or caught.value.hint.partition("with: ")[2]).encode())
    assert ms.refresh("st").action in ("REINITIALIZE", "DIFFERENTIAL")
    rows = writer.execute("SELECT id, v FROM st EXCEPT ALL (SELECT id, v FROM t)").fetchall()
    assert (rows, writer.execute("SELECT count(*) FROM st").fetchone()) == ([], (10,))


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE st ALTER COLUMN v SET DEFAULT 7",
        "ALTER TABLE st ADD COLUMN note text DEFAULT 'x'",
        "ALTER TABLE st SET (fillfactor = 50)",
        "CREATE INDEX ON st (v)",
    ],
)
def test_what_does_not_change_the_rows_is_no_trouble(
    ms: Millstream, writer: psycopg.Connection, ddl: str
) -> None:
    ms.create_stream_table("st", "SELECT id, v FROM t")
    writer.execute(ddl.encode())
    writer.execute("INSERT INTO t VALUES (30, 1, NULL)")
    assert ms.refresh("st").action in ("DIFFERENTIAL", "REINITIALIZE")
    assert ms.verify("st").ok


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE st ALTER COLUMN v TYPE int USING 0",
        "ALTER TABLE st RENAME COLUMN v TO w; ALTER TABLE st ADD COLUMN v int",
        "ALTER TABLE st DROP COLUMN v; ALTER TABLE st ADD COLUMN v int DEFAULT 500",
    ],
)
def test_values_that_ddl_has_replaced_are_computed_again(
    ms: Millstream, writer: psycopg.Connection, ddl: str
) -> None:
    """A rewrite changes rows without a write that a trigger could refuse."""
    ms.create_stream_table("st", "SELECT id, v FROM t", refresh_mode="DIFFERENTIAL")
    writer.execute(ddl.encode())
    report = ms.refresh("st")
    assert (report.action, report.reason, report.rows_updated) == (
        "REINITIALIZE",
        "TABLE_ALTERED",
        9,
    )
    assert ms.verify("st").ok
    writer.execute("UPDATE t SET v = 100 WHERE id = 1")
    assert ms.refresh("st").action == "DIFFERENTIAL"
