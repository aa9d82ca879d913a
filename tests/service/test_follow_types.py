"""The table of a stream table follows the column types of its query, and stays the same table."""

from __future__ import annotations

import psycopg
import pytest
from tests.service.totals_and_names import TABLES, TOTALS, actions, change, check, make

from millstream import Millstream
from millstream.errors import SourceChanged
from millstream.testing import oracle
from millstream.testing.catalog_rows import end_backoff

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(writer: psycopg.Connection) -> psycopg.Connection:
    writer.execute(TABLES)
    return writer


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
