"""The groups of a subquery are kept for the rows that may ask for them, and for no others."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import millstream
from millstream import Millstream
from millstream.algebra.table import SourceTable
from millstream.compiler.server.plan_query import plan_query

pytestmark = pytest.mark.spark

TABLES = """
    CREATE TABLE parts (id int PRIMARY KEY, brand text, box int);
    CREATE TABLE places (shelf int, floor int, kind text, PRIMARY KEY (shelf, floor));
    CREATE TABLE items (id int PRIMARY KEY, part int, wide bigint, shelf int, floor int, quantity int);
    CREATE INDEX ON items (part);
    INSERT INTO parts SELECT n, 'b' || n % 20, n % 3 FROM generate_series(1, 100) AS n;
    INSERT INTO places SELECT n % 10, n / 10, 'k' || n % 5 FROM generate_series(1, 50) AS n;
    INSERT INTO items SELECT n, n % 110, n % 110, n % 10, n % 6, n % 13 FROM generate_series(1, 600) AS n;
    INSERT INTO items VALUES (1001, NULL, NULL, NULL, NULL, 5), (1002, 3, 3, 3, 3, NULL);
"""
GROUP = "(SELECT avg(i.quantity) FROM items AS i WHERE i.part = p.id)"
BESIDE = (
    "SELECT l.id, p.box FROM items AS l JOIN parts AS p ON p.id = "
    f"l.part WHERE p.brand = 'b3' AND l.quantity < {GROUP}"
)
NARROWED = {
    "in WHERE": BESIDE,
    "in the select list": f"SELECT l.id, {GROUP} AS mean FROM items AS l, parts AS p "
    "WHERE p.id = l.part AND p.brand = 'b3'",
    "of nothing": "SELECT l.id, (SELECT count(*) FROM items AS i WHERE i.part = p.id AND i.quantity > 6) AS n "
    "FROM items AS l JOIN parts AS p ON l.part = p.id WHERE p.box = 1 AND p.brand IN ('b3', 'b4', 'b5')",
    "below an outer join": f"SELECT l.id, o.id AS other FROM items AS l JOIN parts AS p ON p.id = l.part "
    f"LEFT JOIN items AS o ON o.quantity = p.id WHERE p.brand = 'b3' AND l.quantity < {GROUP}",
    "by two columns": "SELECT l.id, "
    "(SELECT max(i.quantity) FROM items AS i WHERE i.shelf = s.shelf AND i.floor = s.floor) AS most "
    "FROM items AS l JOIN places AS s ON s.shelf = l.shelf AND s.floor = l.floor WHERE s.kind = 'k2'",
    "of several tables": "SELECT l.id, "
    "(SELECT sum(i.quantity * q.box) FROM items AS i JOIN parts AS q ON q.id = i.quantity WHERE i.part = p.id) AS n "
    "FROM items AS l JOIN parts AS p ON p.id = l.part WHERE p.brand = 'b3'",
    "lateral": "SELECT l.id, q.n, q.texts FROM items AS l JOIN parts AS p ON p.id = l.part AND p.brand = 'b3', "
    "LATERAL (SELECT count(DISTINCT i.quantity) AS n, string_agg(i.quantity::text, ',' ORDER BY i.id) AS texts "
    "FROM items AS i WHERE i.part = p.id) AS q",
}
AS_THEY_ARE = {
    "nothing is asked of the table": f"SELECT l.id FROM items AS l JOIN parts AS p ON p.id = l.part "
    f"WHERE l.quantity < {GROUP}",
    "the items are not read by it otherwise": f"SELECT p.id, {GROUP} AS mean FROM parts AS p WHERE p.brand = 'b3'",
    "not by its key": "SELECT l.id, (SELECT count(*) FROM items AS i WHERE i.part = p.box) AS n "
    "FROM items AS l JOIN parts AS p ON p.box = l.part WHERE p.brand = 'b3'",
    "by half of its key": "SELECT l.id, (SELECT count(*) FROM items AS i WHERE i.shelf = s.shelf) AS n "
    "FROM items AS l JOIN places AS s ON s.shelf = l.shelf WHERE s.kind = 'k2'",
    "of another type": "SELECT l.id, (SELECT count(*) FROM items AS i WHERE i.wide = p.id) AS n "
    "FROM items AS l JOIN parts AS p ON p.id = l.wide WHERE p.brand = 'b3'",
    "asked only in ON of an outer join": f"SELECT p.id, l.id AS item, {GROUP} AS mean FROM parts AS p "
    "LEFT JOIN items AS l ON l.part = p.id AND p.brand = 'b3'",
    "of a row that may be missing": f"SELECT l.id, {GROUP} AS mean FROM items AS l "
    "FULL JOIN parts AS p ON p.id = l.part AND p.brand = 'b3'",
}
CHANGES = (
    # Of a part that is asked for, and of one that is not.
    "UPDATE items SET quantity = 12 WHERE part IN (3, 4) AND id < 200; "
    "INSERT INTO items VALUES (2001, 23, 23, 2, 1, 1)",
    # Parts and places begin to be asked for, and cease; in the same change their items come and go.
    "UPDATE parts SET brand = 'b3' WHERE id IN (4, 40); UPDATE parts SET brand = 'none' WHERE id = 23; "
    "UPDATE places SET kind = 'k2' WHERE kind = 'k1'; DELETE FROM items WHERE part IN (4, 23) AND id > 300; "
    "INSERT INTO items VALUES (2002, 40, 40, 1, 2, 7), (2003, 23, 23, 6, 3, 7)",
    # Items move between parts that are asked for and others; a part comes that items wait for, and
    # one goes.
    "UPDATE items SET part = 3 WHERE part = 50; UPDATE items SET part = NULL WHERE part = 43; "
    "INSERT INTO parts VALUES (105, 'b3', 1); DELETE FROM parts WHERE id = 3; UPDATE parts SET id = 106 WHERE id = 63",
    "UPDATE parts SET brand = 'none', box = 0; UPDATE places SET kind = NULL",
    "UPDATE parts SET brand = 'b3', box = 1 WHERE id % 7 = 0; UPDATE places SET kind = 'k2' WHERE shelf = 4",
)


@pytest.fixture
def writer(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(TABLES)
        yield conn


@pytest.fixture
def ms(database: str, writer: psycopg.Connection) -> Iterator[Millstream]:
    with millstream.connect(database) as ms:
        yield ms


def tables_of_the_group(ms: Millstream, query: str) -> set[str]:
    """What the block of the subquery reads."""
    planned = plan_query(ms.app.conn, query)
    tables = [one.scan.table for one in planned.blocks[-2].inputs()]
    return {table.name for table in tables if isinstance(table, SourceTable)}


def test_which_groups_are_narrowed(ms: Millstream) -> None:
    for what, query in NARROWED.items():
        blocks = plan_query(ms.app.conn, query).blocks[:-1]
        read = {one.of for block in blocks for one in block.inputs()}
        assert read & {"public.parts", "public.places"}, what
    for what, query in AS_THEY_ARE.items():
        assert tables_of_the_group(ms, query) == {"items"}, what


def test_they_are_exact_as_rows_begin_and_cease_to_ask(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    names = {what: f"st_{number}" for number, what in enumerate([*NARROWED, *AS_THEY_ARE])}
    for what, query in (NARROWED | AS_THEY_ARE).items():
        ms.create_stream_table(names[what], query, schedule="1h", refresh_mode="DIFFERENTIAL")
    for change in CHANGES:
        writer.execute(change.encode())
        actions = {report.action for report in ms.refresh_all()}
        assert not [what for what, name in names.items() if not ms.verify(name).ok]
        assert actions == {"DIFFERENTIAL"}


def test_no_other_groups_are_stored(ms: Millstream, writer: psycopg.Connection) -> None:
    ms.create_stream_table("st", BESIDE, schedule="1h")

    def groups() -> list[int]:
        (state,) = writer.execute(
            "SELECT state_relid::regclass::text FROM millstream.blocks WHERE state_relid IS NOT NULL"
        ).fetchall()[0]
        return [key for (key,) in writer.execute(f"SELECT k0 FROM {state} ORDER BY 1".encode())]

    assert groups() == [3, 23, 43, 63, 83]
    writer.execute(
        "UPDATE parts SET brand = 'b3' WHERE id = 7; UPDATE parts SET brand = 'b9' WHERE id = 43"
    )
    assert ms.refresh("st").action == "DIFFERENTIAL"
    assert groups() == [3, 7, 23, 63, 83]


def test_without_the_key_all_groups_are_stored(ms: Millstream, writer: psycopg.Connection) -> None:
    ms.create_stream_table("st", BESIDE.replace("l.id, ", "l.quantity, "), schedule="1h")
    writer.execute(
        "ALTER TABLE parts DROP CONSTRAINT parts_pkey; INSERT INTO parts VALUES (3, 'b3', 9)"
    )
    assert ms.refresh("st").reason == "PLANNED_ANEW"
    assert ms.verify("st").ok
    writer.execute("INSERT INTO items VALUES (3001, 3, 3, 0, 0, 1)")
    assert ms.refresh("st").action == "DIFFERENTIAL"
    assert ms.verify("st").ok
