"""Columns of staging tables have built-in types only."""

from __future__ import annotations

from psycopg import sql

from millstream.algebra.types import Column, PgType
from millstream.algebra.wire import wire_of
from millstream.store.staging_columns import (
    received,
    stage,
    staged,
    staged_key,
    stages,
    unstage,
    unstaged,
)
from millstream.testing.planning_server import pg_type

ROWS, STAGED, NET = sql.SQL("SELECT 1"), sql.Identifier("pg_temp", "t"), sql.SQL("s.__net")
BUILT_IN = Column("id", pg_type("int4"))
USERS = Column(
    "mood", PgType(90_000, "public.mood", "mood", kind="enum", output="pg_catalog.enum_out")
)


def test_only_user_defined_types_need_another_type() -> None:
    assert not stages([BUILT_IN])
    assert stages([BUILT_IN, USERS])


def test_rows_of_built_in_types_are_staged_as_they_are() -> None:
    assert stage([BUILT_IN], ROWS) is ROWS
    assert unstage([BUILT_IN], STAGED) is STAGED


def test_staged_rows_keep_the_order_of_columns_behind_the_other_columns() -> None:
    query = stage([BUILT_IN, USERS], ROWS, NET).as_string()
    assert query.startswith("SELECT s.__net, ")
    assert query.index('AS "id"') < query.index('AS "mood"')
    item = unstage([BUILT_IN, USERS], STAGED, NET).as_string()
    assert item.startswith("(SELECT s.__net, ")
    assert item.endswith(' FROM "pg_temp"."t" AS s)')
    assert "public.mood" in item


def test_a_value_of_a_built_in_type_is_staged_as_it_is() -> None:
    value = sql.Identifier("s", "id")
    assert staged(value, BUILT_IN.type) is value
    assert unstaged(value, BUILT_IN.type) is value


def test_a_value_of_a_users_type_is_staged_as_its_text() -> None:
    value = sql.Identifier("s", "mood")
    printed = staged(value, USERS.type).as_string()
    assert printed == 'pg_catalog.textin(pg_catalog.enum_out("s"."mood"))'
    assert '"s"."mood"' in unstaged(value, USERS.type).as_string()


def test_the_text_of_a_users_type_goes_through_staging_as_it_was_sent() -> None:
    value, wire = sql.Identifier("d", "mood"), wire_of(USERS.type)
    assert received(value, wire, USERS.type) is value
    assert staged_key(value, wire, USERS.type) is value
