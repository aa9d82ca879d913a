"""What the text of a query calls the relations and columns that it reads."""

from __future__ import annotations

import pytest

from millstream.catalog.definitions import query_names
from millstream.catalog.definitions.query_names import NamedRelation
from millstream.postgres.connection import Connection


@pytest.fixture
def view(conn: Connection) -> int:
    """A view over two tables; of one a column was dropped."""
    conn.execute(
        "CREATE SCHEMA shop; CREATE TABLE shop.orders (id int PRIMARY KEY, old int, amount int)"
    )
    conn.execute("ALTER TABLE shop.orders DROP COLUMN old; CREATE TABLE public.other (id int)")
    conn.execute(
        "CREATE VIEW public.v AS SELECT o.amount FROM shop.orders AS o JOIN public.other AS p ON p.id = o.id"
    )
    oid: int = conn.execute("SELECT 'public.v'::regclass::oid::int8").fetchall()[0][0]
    return oid


def test_columns_have_the_numbers_that_stay_when_others_go(conn: Connection, view: int) -> None:
    named = {one.qualified: one for one in query_names.of_view(conn, view)}
    assert set(named) == {("shop", "orders"), ("public", "other")}
    assert dict(named["shop", "orders"].columns) == {1: "id", 3: "amount"}


def test_present_names_follow_a_rename_and_what_is_gone_is_left_out(
    conn: Connection, view: int
) -> None:
    before = {one.name: one.relid for one in query_names.of_view(conn, view)}
    conn.execute(
        "ALTER TABLE shop.orders RENAME TO sales; ALTER TABLE shop.sales RENAME amount TO total"
    )
    found = query_names.now(conn, [*before.values(), 1])
    sales = found[before["orders"]]
    assert (sales.qualified, dict(sales.columns)[3]) == (("shop", "sales"), "total")
    assert set(found) == set(before.values())


def test_a_name_is_taken_by_a_relation_of_any_kind(conn: Connection, view: int) -> None:
    asked = [("shop", "orders"), ("public", "v"), ("public", "orders")]
    assert query_names.taken(conn, asked) == {("shop", "orders"), ("public", "v")}


def test_the_primary_key_is_returned_as_columns(conn: Connection, view: int) -> None:
    oids = {one.name: one.relid for one in query_names.of_view(conn, view)}
    assert query_names.primary_key(conn, oids["orders"]) == ["id"]
    assert query_names.primary_key(conn, oids["other"]) == []


def test_numbers_and_names_belong_together() -> None:
    assert NamedRelation.of(7, "s", "t", [1, 3], ["a", "b"]).columns == ((1, "a"), (3, "b"))
    with pytest.raises(ValueError, match="shorter"):
        NamedRelation.of(7, "s", "t", [1, 3], ["a"])
