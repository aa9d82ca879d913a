"""The verb validate: what create would make of a query, without making anything."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

import millstream
from millstream import Millstream, Settings
from millstream.bundled.server import Server
from millstream.catalog import stream_tables
from millstream.errors import BadSetting, MillstreamError
from millstream.postgres.connection import connect

TABLES = """
    CREATE TABLE regions (id int PRIMARY KEY, name text NOT NULL, note text);
    CREATE TABLE orders (id bigint PRIMARY KEY, region int, amount numeric(12,2), at timestamptz);
    ALTER TABLE orders REPLICA IDENTITY FULL;
    CREATE TABLE visits (page text);
    CREATE TABLE guarded (id int PRIMARY KEY);
    ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
    CREATE ROLE validate_clerk;
    GRANT SELECT (id) ON regions TO validate_clerk;
"""
TOTALS = "SELECT region, sum(amount) AS total FROM orders GROUP BY region"


@pytest.fixture(scope="module")
def shop(server: Server) -> Iterator[Millstream]:
    """Millstream in a database with a few tables; no Spark is started."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE validate_shop")
    dsn = server.dsn_for("tester", "validate_shop")
    try:
        with connect(dsn) as conn:
            conn.execute(TABLES)
            with millstream.connect(dsn, settings=Settings(cdc_mode="auto")) as ms:
                ms.create_stream_table("pages", "SELECT page FROM visits", initialize=False)
                yield ms
            conn.execute("DROP OWNED BY validate_clerk; DROP ROLE validate_clerk")
    finally:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("DROP DATABASE validate_shop WITH (FORCE)")


def test_an_accepted_query_has_its_columns_key_and_blocks(shop: Millstream) -> None:
    found = shop.validate(TOTALS)
    assert found.ok
    assert [(column.name, column.type) for column in found.columns] == [
        ("region", "integer"),
        ("total", "numeric"),
    ]
    assert found.key == "key (region)"
    assert [(block.name, block.materializes) for block in found.blocks] == [
        ("result", 'the state of each group ("orders"."region")')
    ]
    assert "head  Aggregate by" in found.blocks[0].plan


@pytest.mark.parametrize(
    ("query", "materialized"),
    [
        ("SELECT id FROM orders", [""]),
        ("SELECT count(*) FROM orders", ["the state of one group"]),
        (
            "SELECT id, rank() OVER (PARTITION BY region ORDER BY id) AS n FROM orders",
            ['the rows of each partition ("orders"."region")', ""],
        ),
        (
            "SELECT DISTINCT region, EXISTS (SELECT FROM visits WHERE page = region::text) AS has FROM orders",
            ['the state of each group ("orders"."region", has)'],
        ),
        ("SELECT id FROM orders ORDER BY id LIMIT 3", ["the first rows in order", ""]),
        (
            f"SELECT max(total) FROM ({TOTALS}) AS t",
            ['the state of each group ("orders"."region")', "the state of one group"],
        ),
    ],
)
def test_each_block_says_what_it_stores(
    shop: Millstream, query: str, materialized: list[str]
) -> None:
    assert [block.materializes for block in shop.validate(query).blocks] == materialized


def test_sources_come_with_the_columns_that_are_read_and_how_they_would_be_captured(
    shop: Millstream,
) -> None:
    found = shop.validate(
        "SELECT o.id, r.name FROM orders AS o JOIN regions AS r ON r.id = o.region"
    )
    assert {source.name: source.columns for source in found.sources} == {
        "public.orders": ("id", "region"), "public.regions": ("id", "name"),
    }  # fmt: skip
    assert {source.name: source.capture for source in found.sources} == {
        "public.orders": "WAL",
        "public.regions": "TRIGGER",
    }
    [reason] = [source.reason for source in found.sources if source.capture == "TRIGGER"]
    assert 'ALTER TABLE "public"."regions" REPLICA IDENTITY FULL;' in reason


def test_capture_by_triggers_is_no_fault_where_it_is_wanted(shop: Millstream) -> None:
    [source] = shop.validate(TOTALS, cdc_mode="trigger").sources
    assert (source.capture, source.reason) == (
        "TRIGGER",
        "The setting or parameter cdc_mode asks for trigger capture.",
    )


def test_capture_from_wal_where_it_is_impossible_is_a_refusal(shop: Millstream) -> None:
    found = shop.validate("SELECT id FROM regions", cdc_mode="wal")
    assert found.refusal is not None
    assert (found.refusal.code, found.columns) == ("MS104", ())


@pytest.mark.parametrize(
    ("query", "code", "at"),
    [
        ("SELECT id, random() AS r FROM orders", "MS103", "random"),
        ("SELECT nothing FROM orders", "MS101", "nothing"),
        ("SELEC id FROM orders", "MS101", "SELEC"),
        ("SELECT id FROM orders TABLESAMPLE SYSTEM (10)", "MS102", "TABLESAMPLE"),
    ],
)
def test_a_refusal_is_an_answer_with_the_place_in_the_query(
    shop: Millstream, query: str, code: str, at: str
) -> None:
    found = shop.validate(query)
    assert not found.ok
    assert found.refusal is not None
    assert found.refusal.code == code
    assert found.position == query.index(at) + 1


def test_it_refuses_what_create_refuses_with_the_same_words(shop: Millstream) -> None:
    query = "SELECT id, random() AS r FROM orders"
    with pytest.raises(MillstreamError) as caught:
        shop.create_stream_table("never", query, initialize=False)
    refusal = shop.validate(query).refusal
    assert refusal is not None
    assert refusal.as_dict() == caught.value.as_dict()


def test_the_owner_must_be_allowed_to_read_the_columns(shop: Millstream) -> None:
    assert shop.validate("SELECT id FROM regions", owner="validate_clerk").ok
    refusal = shop.validate("SELECT name FROM regions", owner="validate_clerk").refusal
    assert refusal is not None
    assert refusal.code == "MS010"
    with pytest.raises(BadSetting):
        shop.validate("SELECT 1", owner="nobody_here")
    with pytest.raises(BadSetting):
        shop.validate(TOTALS, schedule="often")


def test_notices_say_what_readers_should_know(shop: Millstream) -> None:
    [policy] = shop.validate("SELECT id FROM guarded").notices
    [clock, *_] = shop.validate("SELECT id FROM orders WHERE at > now() - interval '1 day'").notices
    [row_id] = shop.validate("SELECT page FROM visits").notices
    upstream = shop.validate("SELECT page FROM pages").notices
    assert "row-level security" in policy
    assert "current time" in clock
    assert "__ms_row_id" in row_id
    assert 'in the same cut before it: "public"."pages".' in upstream[-1]


def test_a_stream_table_is_read_without_wal(shop: Millstream) -> None:
    [source] = shop.validate("SELECT page FROM pages").sources
    assert (source.name, source.capture) == ("public.pages", "TRIGGER")
    assert "stream table" in source.reason


def test_nothing_is_created_and_spark_is_not_started(shop: Millstream) -> None:
    conn = shop.app.conn
    counted = (
        "SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM "
        "pg_proc), (SELECT count(*) FROM pg_trigger)"
    )
    before, tables = conn.execute(counted).fetchall(), stream_tables.every(conn)
    for query in (TOTALS, f"SELECT max(total) FROM ({TOTALS}) AS t", "SELECT nothing FROM orders"):
        shop.validate(query)
    assert conn.execute(counted).fetchall() == before
    assert stream_tables.every(conn) == tables
    assert shop.app._engine is None
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_it_is_one_json_document(shop: Millstream) -> None:
    accepted = json.loads(json.dumps(shop.validate(TOTALS).as_dict()))
    refused = json.loads(json.dumps(shop.validate("SELECT random() FROM orders").as_dict()))
    assert (accepted["ok"], accepted["error"], accepted["sources"][0]["capture"]) == (
        True,
        None,
        "WAL",
    )
    assert (refused["ok"], refused["error"]["code"], refused["error"]["position"]) == (
        False,
        "MS103",
        8,
    )


def test_a_deep_query_is_summarised_too(shop: Millstream) -> None:
    terms = " + ".join(["amount"] * 600)
    assert shop.validate(f"SELECT id, {terms} AS total FROM orders").ok
