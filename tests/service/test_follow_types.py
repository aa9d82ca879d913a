"""The table of a stream table follows the column types of its query, and stays the same table."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millstream import Millstream
from millstream.errors import SourceChanged
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff

pytestmark = pytest.mark.spark


TOTALS = "SELECT g, sum(v) AS total, count(*) AS n FROM t GROUP BY g"


TABLES = """
    CREATE TABLE t (id int PRIMARY KEY, g int, v int, w varchar(10));
    CREATE TABLE names (g int PRIMARY KEY, name text);
    INSERT INTO t SELECT i, i % 3, i, 'w' || i FROM generate_series(1, 9) AS i;
    INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (2, 'two')
"""


CHANGE = (
    "UPDATE {t} SET {g} = 1 WHERE {id} = 3; DELETE FROM {t} WHERE "
    "{id} = 4; INSERT INTO {t} VALUES ({n}, 2, 7, 'x')"
)


@pytest.fixture
def writer(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
        yield conn


def change(writer: psycopg.Connection, n: int, t: str = "t", id: str = "id", g: str = "g") -> None:
    writer.execute(CHANGE.format(t=t, id=id, g=g, n=n).encode())


def make(ms: Millstream) -> None:
    ms.create_stream_table("totals", TOTALS)
    ms.create_stream_table(
        "named", "SELECT t.id, names.name, t.v FROM t JOIN names ON names.g = t.g"
    )
    ms.create_stream_table("above", "SELECT count(*) AS groups, sum(total) AS total FROM totals")


def actions(ms: Millstream) -> dict[str, str]:
    """Refresh all, prove all right, return what was done."""
    found: dict[str, str] = {report.name: report.action for report in ms.refresh_all()}
    assert [name for name in found if not ms.verify(name).ok] == []
    return found


def check(ms: Millstream, t: str = "t", g: str = "g", v: str = "v", id: str = "id") -> None:
    oracle.check(
        ms.app.conn,
        f"SELECT {g} AS g, sum({v}) AS total, count(*) AS n FROM {t} GROUP BY {g}",
        "totals",
    )
    named = (
        f"SELECT x.{id} AS id, names.name, x.{v} AS v FROM {t} AS x JOIN names ON names.g = x.{g}"
    )
    oracle.check(ms.app.conn, named, "named")


DECORATED = """
    CREATE INDEX by_total ON totals (total) WHERE n > 0;
    COMMENT ON COLUMN totals.total IS 'ours';
    GRANT SELECT ON totals TO PUBLIC;
    CREATE TABLE seen (n bigint);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.seen VALUES (NEW.n); RETURN NULL; END $$;
    CREATE TRIGGER note AFTER UPDATE ON totals FOR EACH ROW EXECUTE FUNCTION note();
"""


DECORATION = """
    SELECT c.oid, c.relacl::text, col_description(c.oid, 2), array_agg(DISTINCT i.indexrelid::regclass::text),
        array_agg(DISTINCT t.tgname::text)
    FROM pg_class AS c
    JOIN pg_index AS i ON i.indrelid = c.oid
    JOIN pg_trigger AS t ON t.tgrelid = c.oid
    WHERE c.oid = 'totals'::regclass GROUP BY c.oid, c.relacl
"""


def test_retyped_columns_are_followed_and_the_table_stays_the_same_one(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """Every refresh failed until the stream table was created again, without its indexes, rights
    and triggers.
    """
    make(ms)
    ms.create_stream_table(
        "texts", "SELECT w, count(*) AS n, max(v) AS last FROM t GROUP BY w HAVING min(v) > 0"
    )
    writer.execute(DECORATED)
    decoration = writer.execute(DECORATION).fetchall()
    for n, (ddl, type) in enumerate(
        [
            ("ALTER TABLE t ALTER v TYPE bigint, ALTER w TYPE varchar(20)", "numeric"),
            ('ALTER TABLE t ALTER v TYPE numeric(12,2), ALTER w TYPE text COLLATE "C"', "numeric"),
            # The keys of `texts` are no numbers, and cannot be converted.
            (
                "ALTER TABLE t ALTER v TYPE smallint, ALTER w TYPE int USING length(w), ALTER g TYPE text; "
                "ALTER TABLE names ALTER g TYPE text",
                "bigint",
            ),
        ]
    ):
        change(writer, 20 + n)
        writer.execute(ddl.encode())
        writer.execute("INSERT INTO t (id, g, v) VALUES (%s, 5, 1)", (30 + n,))
        done = actions(ms)
        assert (done["totals"], done["texts"]) == ("REINITIALIZE", "REINITIALIZE")
        check(ms)
        query = "SELECT w, count(*) AS n, max(v) AS last FROM t GROUP BY w HAVING min(v) > 0"
        oracle.check(ms.app.conn, query, "texts")
        assert writer.execute("SELECT DISTINCT pg_typeof(total)::text FROM totals").fetchall() == [
            (type,)
        ]
        assert writer.execute(DECORATION).fetchall() == decoration
        writer.execute("UPDATE t SET v = v + 1 WHERE id IN (1, 2)")
        assert set(actions(ms).values()) == {"DIFFERENTIAL"}


def test_a_view_over_a_stream_table_that_stands_in_the_way_is_named(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    ms.create_stream_table("totals", TOTALS, schedule="continuous")
    writer.execute(
        "CREATE VIEW shown AS SELECT total FROM totals; ALTER TABLE t ALTER v TYPE bigint"
    )
    with pytest.raises(SourceChanged, match="cannot get the columns") as caught:
        ms.refresh("totals")
    assert "view public.shown" in caught.value.detail
    assert ms.app.named("totals").status == "ERROR"
    writer.execute("DROP VIEW shown")
    end_backoff(ms.app.conn)
    assert [report.action for report in ms.tick()] == ["REINITIALIZE"]
    assert (ms.app.named("totals").status, ms.verify("totals").ok) == ("ACTIVE", True)


def test_columns_of_a_stream_table_are_altered_also_while_its_reader_is_suspended(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    """Its triggers, which capture for the reader, named the former types: each refresh of it
    failed.
    """
    ms.create_stream_table("shown", "SELECT id, v FROM t")
    ms.create_stream_table("above", "SELECT max(v) AS v FROM shown")
    ms.alter_stream_table("above", status="SUSPENDED")
    writer.execute(
        "ALTER TABLE t ALTER v TYPE text; INSERT INTO t (id, v) VALUES (30, 'no number')"
    )
    assert [(report.name, report.action) for report in ms.refresh_all()] == [
        ("shown", "REINITIALIZE")
    ]
    assert ms.verify("shown").ok
    ms.alter_stream_table("above", status="ACTIVE")
    ms.refresh_all()
    oracle.check(ms.app.conn, "SELECT max(v) AS v FROM t", "above")
