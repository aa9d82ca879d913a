"""What a stream table stands on changes and no row does: answered with the right rows or with an
error.
"""

from __future__ import annotations

import psycopg
import pytest

from millstream.client import Millstream
from millstream.errors import SourceChanged, TargetDiffers, TargetMoved
from millstream.testing import oracle

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(ms: Millstream, writer: psycopg.Connection) -> psycopg.Connection:
    writer.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 9) AS i"
    )
    return writer


def restarted(ms: Millstream) -> None:
    """As a new process finds things: nothing is known but what the catalog says."""
    for table in ms.status():
        ms.app.forget(ms.app.named(f'"{table.schema}"."{table.name}"').id)


def check(ms: Millstream, query: str, name: str = "st") -> None:
    oracle.check(ms.app.conn, query, name)


# -- what tells the rows apart -----------------------------------------------------------------


def test_the_key_of_creation_stays_when_the_source_gets_a_primary_key(
    ms: Millstream, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "CREATE TABLE bag (id int NOT NULL, v int); INSERT INTO bag VALUES (1, 1), (2, 2)"
        )
        ms.create_stream_table("st", "SELECT id, v FROM bag")
        conn.execute("ALTER TABLE bag ADD PRIMARY KEY (id); UPDATE bag SET v = 5 WHERE id = 1")
        restarted(ms)
        assert ms.refresh("st").action == "DIFFERENTIAL"
        check(ms, "SELECT id, v FROM bag")


def test_the_key_of_creation_stays_while_its_unique_index_does(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD COLUMN other int; UPDATE t SET other = 10 - id"
    )
    writer.execute("CREATE UNIQUE INDEX ON t (id)")
    ms.create_stream_table("st", "SELECT id, other, v FROM t")
    writer.execute(
        "ALTER TABLE t ADD PRIMARY KEY (other); UPDATE t SET other = other + 100 WHERE id = 1"
    )
    assert ms.refresh("st").action == "DIFFERENTIAL"
    check(ms, "SELECT id, other, v FROM t")
    assert "key (id)" in str(ms.explain("st"))


@pytest.mark.parametrize("again", [False, True])
def test_a_source_that_lost_the_key_is_an_error(
    ms: Millstream, writer: psycopg.Connection, again: bool
) -> None:
    ms.create_stream_table("st", "SELECT id, v FROM t")
    writer.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (1, 77)")
    if again:
        restarted(ms)
    with pytest.raises(SourceChanged, match="no longer identifies its rows"):
        ms.refresh("st")
    writer.execute(
        "DELETE FROM t WHERE v = 77; ALTER TABLE t ADD PRIMARY KEY (id); DELETE FROM t WHERE id = 2"
    )
    ms.refresh("st")
    check(ms, "SELECT id, v FROM t")


@pytest.mark.parametrize(
    ("query", "drop"),
    [
        ("SELECT id, v FROM t", "DROP INDEX st_id_idx"),
        ("SELECT v FROM t", "ALTER TABLE st DROP CONSTRAINT st_pkey"),
        ("SELECT v, count(*) AS n FROM t GROUP BY v", "DROP INDEX st_v_idx"),
        ("SELECT count(*) AS n FROM t", "DROP INDEX st_expr_idx"),
    ],
)
def test_a_missing_unique_index_with_the_mark_is_an_error(
    ms: Millstream, writer: psycopg.Connection, query: str, drop: str
) -> None:
    ms.create_stream_table("st", query)
    writer.execute("CREATE INDEX ON st ((true)); INSERT INTO t VALUES (10, 10)")
    ms.refresh("st")
    writer.execute(drop.encode())
    with pytest.raises(TargetDiffers, match="was changed since the last refresh") as caught:
        ms.refresh("st")
    assert "unique index" in caught.value.detail
    create = caught.value.hint.partition(": ")[2].partition("; Or drop")[0]
    writer.execute(create.encode())
    # Nothing but a comment says that a table is ours; the second hint has the statement that makes
    # it again.
    with pytest.raises(TargetMoved, match="not have Millstream's comment") as unmarked:
        ms.refresh("st")
    hint = unmarked.value.hint
    writer.execute(hint[hint.index("COMMENT") : hint.index(". Or keep")].encode())
    assert ms.refresh("st").action in ("DIFFERENTIAL", "REINITIALIZE", "NO_DATA")
    assert ms.verify("st").ok


# -- what the query means ----------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
def test_a_view_that_was_replaced_is_followed(
    ms: Millstream, writer: psycopg.Connection, again: bool
) -> None:
    writer.execute("CREATE VIEW inner_view AS SELECT id, v FROM t WHERE v > 5")
    writer.execute("CREATE VIEW outer_view AS SELECT id, v AS w FROM inner_view")
    ms.create_stream_table("st", "SELECT id, w FROM outer_view")
    ms.create_stream_table("sums", "SELECT count(*) AS n, sum(w) AS s FROM outer_view")
    writer.execute("ALTER TABLE t ADD COLUMN x int DEFAULT 3")
    writer.execute("CREATE OR REPLACE VIEW inner_view AS SELECT id, v + x AS v FROM t WHERE v > 7")
    if again:
        restarted(ms)
    reports = ms.refresh_all()
    assert {(one.action, one.reason) for one in reports} == {("REINITIALIZE", "VIEW_REPLACED")}
    writer.execute("INSERT INTO t VALUES (20, 6), (21, 30); UPDATE t SET x = 4 WHERE id = 9")
    assert {one.action for one in ms.refresh_all()} == {"DIFFERENTIAL"}
    check(ms, "SELECT id, w FROM outer_view")
    check(ms, "SELECT count(*) AS n, sum(w) AS s FROM outer_view", "sums")


@pytest.mark.parametrize("again", [False, True])
def test_a_function_that_was_replaced_is_followed(
    ms: Millstream, writer: psycopg.Connection, again: bool
) -> None:
    writer.execute(
        "CREATE FUNCTION more(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'"
    )
    ms.create_stream_table("st", "SELECT id, more(v) AS x FROM t")
    writer.execute(
        "CREATE OR REPLACE FUNCTION more(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 100'"
    )
    if again:
        restarted(ms)
    report = ms.refresh("st")
    assert (report.action, report.reason, report.rows_updated) == (
        "REINITIALIZE",
        "FUNCTION_REPLACED",
        9,
    )
    check(ms, "SELECT id, more(v) AS x FROM t")
    assert ms.refresh("st").action == "NO_DATA"


def test_a_function_that_became_volatile_is_an_error(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute(
        "CREATE FUNCTION more(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'"
    )
    ms.create_stream_table("st", "SELECT id, more(v) AS x FROM t")
    writer.execute("ALTER FUNCTION more(int) VOLATILE")
    with pytest.raises(SourceChanged, match="st") as caught:
        ms.refresh("st")
    assert "volatile" in caught.value.detail


def test_the_function_of_an_operator_counts(ms: Millstream, writer: psycopg.Connection) -> None:
    writer.execute(
        "CREATE FUNCTION near(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT abs($1 - $2) < 3'"
    )
    writer.execute("CREATE OPERATOR ~~~ (LEFTARG = int, RIGHTARG = int, FUNCTION = near)")
    ms.create_stream_table("st", "SELECT id FROM t WHERE v ~~~ 5")
    writer.execute(
        "CREATE OR REPLACE FUNCTION near(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 = $2'"
    )
    assert ms.refresh("st").reason == "FUNCTION_REPLACED"
    check(ms, "SELECT id FROM t WHERE v ~~~ 5")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT m, count(*) AS n FROM moods GROUP BY m",
        "SELECT m FROM moods",
        "SELECT id, list FROM moods",
    ],
)
def test_a_label_that_was_renamed_is_followed(
    ms: Millstream, writer: psycopg.Connection, query: str
) -> None:
    writer.execute("CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN temper AS mood")
    writer.execute("CREATE TABLE moods (id int PRIMARY KEY, m temper, list mood[])")
    writer.execute(
        "INSERT INTO moods VALUES (1, 'sad', '{sad}'), (2, 'sad', '{ok,sad}'), (3, 'ok', '{}')"
    )
    ms.create_stream_table("st", query)
    writer.execute(
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; INSERT INTO moods VALUES (5, 'blue', '{blue}')"
    )
    assert ms.refresh("st").reason == "TYPE_CHANGED"
    check(ms, query)
    writer.execute("DELETE FROM moods WHERE id = 1")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    check(ms, query)


# -- the tables themselves ---------------------------------------------------------------------


def test_a_table_that_was_rewritten_is_read_again(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    ms.create_stream_table("st", "SELECT id, v FROM t")
    writer.execute("ALTER TABLE t ALTER COLUMN v TYPE int USING v * 10")
    report = ms.refresh("st")
    assert (report.action, report.reason, report.rows_updated) == (
        "REINITIALIZE",
        "SOURCE_REWRITTEN",
        9,
    )
    check(ms, "SELECT id, v FROM t")


def test_a_partition_that_was_rewritten_is_read_again(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE TABLE p (id int, v int) PARTITION BY RANGE (id)")
    writer.execute(
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1, 1), (2, 2)"
    )
    ms.create_stream_table("st", "SELECT id, v FROM p")
    writer.execute("ALTER TABLE p ALTER COLUMN v TYPE int USING v + 1")
    assert ms.refresh("st").reason == "SOURCE_REWRITTEN"
    check(ms, "SELECT id, v FROM p")


def test_vacuum_full_and_truncate_do_no_harm(ms: Millstream, writer: psycopg.Connection) -> None:
    ms.create_stream_table("st", "SELECT id, v FROM t")
    writer.execute("INSERT INTO t VALUES (10, 10)")
    writer.execute("VACUUM FULL t")
    assert ms.refresh("st").rows_inserted == 1
    writer.execute("TRUNCATE t; INSERT INTO t VALUES (1, 1), (50, 50)")
    report = ms.refresh("st")
    assert (report.action, report.reason) == ("REINITIALIZE", "SOURCE_TRUNCATED")
    assert ms.refresh("st").action == "NO_DATA"
    check(ms, "SELECT id, v FROM t")


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("away", ["ALTER TABLE t RENAME TO t_old", "DROP TABLE t"])
def test_a_table_that_was_swapped_for_another_of_its_name_is_that_other_one(
    ms: Millstream, writer: psycopg.Connection, away: str, again: bool
) -> None:
    ms.create_stream_table("st", "SELECT a.id, b.v FROM t AS a JOIN t AS b ON a.id = b.id")
    writer.execute(away.encode())
    writer.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (9, 9), (70, 70)"
    )
    if again:
        restarted(ms)
    report = ms.refresh("st")
    assert (report.action, report.reason) == ("REINITIALIZE", "SOURCE_REPLACED")
    writer.execute("INSERT INTO t VALUES (80, 80)")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    check(ms, "SELECT a.id, b.v FROM t AS a JOIN t AS b ON a.id = b.id")
    # The stream table has its guard.
    ours = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'millstream%'"
    left = f"{ours} AND tgrelid NOT IN ('t'::regclass, 'st'::regclass)"
    assert writer.execute(left.encode()).fetchone() == (0,)


def test_another_table_with_other_types_is_followed(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    ms.create_stream_table("st", "SELECT id, v FROM t")
    writer.execute(
        "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'one')"
    )
    assert ms.refresh("st").action == "REINITIALIZE"
    check(ms, "SELECT id, v FROM t")
