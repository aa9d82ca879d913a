"""What keeps the rows of a query from being stored in a stream table's table, and the statement
that undoes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from millstream import Millstream
from millstream.algebra.types import Column
from millstream.catalog.target import target_shape
from millstream.catalog.target.target_shape import TypedColumn
from millstream.errors import TargetAltered


def check(ms: Millstream, columns: Sequence[Column] = ()) -> None:
    """Check the table of `totals` against the columns of its query."""
    table = ms.app.named("totals")
    outputs = columns or [output.column for output in ms.app.plan(table).block.outputs]
    target_shape.check(ms.app.conn, table.id, "totals", table.relid or 0, outputs)


def test_a_table_as_it_was_made_stores_the_rows(unfilled: Millstream) -> None:
    check(unfilled)


ALTERED = {
    "ALTER TABLE public.totals DROP COLUMN total": 'Column "total" of type bigint is missing',
    "CREATE RULE r AS ON INSERT TO public.totals DO INSTEAD NOTHING": "DROP RULE r ON",
    "CREATE TABLE public.child () INHERITS (public.totals)": "ALTER TABLE .*child NO INHERIT",
    "ALTER TABLE public.totals DROP COLUMN total, ADD COLUMN total bigint GENERATED ALWAYS AS (5) STORED": "generated",
}


def test_what_the_owner_has_altered_is_named(unfilled: Millstream) -> None:
    for ddl, says in ALTERED.items():
        with unfilled.app.conn.transaction(force_rollback=True):
            unfilled.app.conn.execute(ddl.encode())
            with pytest.raises(TargetAltered, match=says):
                check(unfilled)


def test_the_statement_that_is_named_undoes_it(unfilled: Millstream) -> None:
    conn = unfilled.app.conn
    conn.execute("CREATE RULE r AS ON INSERT TO public.totals DO INSTEAD NOTHING")
    with pytest.raises(TargetAltered) as caught:
        check(unfilled)
    conn.execute(caught.value.hint.removeprefix("Undo it with: ").encode())
    check(unfilled)


def test_a_column_that_the_query_does_not_have_may_be_there(
    unfilled: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("ALTER TABLE totals ADD COLUMN note text")
    check(unfilled)


def test_columns_of_another_type_are_returned_with_the_type_in_the_query(
    unfilled: Millstream, writer: psycopg.Connection
) -> None:
    writer.execute("CREATE VIEW public.v AS SELECT 'x'::text AS region, 5::numeric(9,2) AS total")
    oids = writer.execute(
        "SELECT 'v'::regclass::oid::int8, 'totals'::regclass::oid::int8"
    ).fetchall()[0]
    assert target_shape.retyped(unfilled.app.conn, *oids) == [
        TypedColumn("total", "numeric(9,2)", None)
    ]
    assert [column.name for column in target_shape.wanted(unfilled.app.conn, oids[0])] == [
        "region",
        "total",
    ]
