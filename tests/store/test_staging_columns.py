"""Columns of staging tables have built-in types only."""

from __future__ import annotations

from millstream.algebra.types import Column, PgType
from millstream.store.staging_columns import stage, stages, unstage
from millstream.testing.planning_server import pg_type

BUILT_IN = Column("id", pg_type("int4"))
USERS = Column(
    "mood", PgType(90_000, "public.mood", "mood", kind="enum", output="pg_catalog.enum_out")
)


def test_only_user_defined_types_need_another_type() -> None:
    assert not stages([BUILT_IN])
    assert stages([BUILT_IN, USERS])


def test_rows_of_built_in_types_are_staged_as_they_are() -> None:
    assert stage([BUILT_IN], "SELECT 1") == "SELECT 1"
    assert unstage([BUILT_IN], "pg_temp.t") == "pg_temp.t"


def test_staged_rows_keep_the_order_of_columns_behind_the_other_columns() -> None:
    query = stage([BUILT_IN, USERS], "SELECT 1", "s.__net")
    assert query.startswith("SELECT s.__net, ")
    assert query.index('AS "id"') < query.index('AS "mood"')
    item = unstage([BUILT_IN, USERS], "pg_temp.t", "s.__net")
    assert item.startswith("(SELECT s.__net, ")
    assert item.endswith(" FROM pg_temp.t AS s)")
    assert "public.mood" in item
