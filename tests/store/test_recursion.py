"""The SQL of a recursion's rows.

Refreshing them step by step: `tests/refresh/test_recursion.py`.
"""

from __future__ import annotations

import pytest
from psycopg import sql
from tests.compiler.conftest import planned

from millstream.algebra.block import RecursionBlock
from millstream.postgres.connection import Connection
from millstream.store.materialized_rows import create_sql
from millstream.store.names import BlockNames
from millstream.store.recursion import step, tables_sql

NAMES = BlockNames(5, "public", "st", shapes=("s", "s"))


def recursion(union: str) -> RecursionBlock:
    """The block of a recursion over t and u."""
    text = (
        f"WITH RECURSIVE r(n) AS (SELECT t.a FROM public.t {union} SELECT u.b FROM public.u JOIN r ON r.n = u.a) "
        "SELECT r.n FROM r"
    )
    block, _ = planned(text, "n", {'q."c0"': "int4"})
    assert isinstance(block, RecursionBlock)
    return block


@pytest.mark.parametrize(
    ("union", "columns"), [("UNION", ["c0"]), ("UNION ALL", ["c0", "__ms_level"])]
)
def test_each_term_has_its_delta_and_steps_have_the_columns_of_the_rows(
    conn: Connection, union: str, columns: list[str]
) -> None:
    block = recursion(union)
    conn.execute("CREATE SCHEMA millstream_state")
    level = ", __ms_level int" if "__ms_level" in columns else ""
    create = sql.SQL("CREATE TABLE {} (part uuid, c0 int" + level + ")")
    conn.execute(create.format(NAMES.materialized))
    for statement in [*tables_sql(block, NAMES), *tables_sql(block, NAMES)]:
        conn.execute(statement)
    described = conn.execute(sql.SQL("SELECT * FROM {}").format(NAMES.steps)).description or []
    assert [column.name for column in described] == ["part", *columns, "__ms_net", "__ms_step"]
    for number, term in enumerate(block.terms):
        delta = sql.SQL("SELECT * FROM {}").format(NAMES.of_term(number).delta)
        described = conn.execute(delta).description or []
        assert [column.name for column in described] == [
            *(c.name for c in term.block.columns),
            "__net",
            "__run",
        ]


def test_the_rows_of_one_step_are_those_that_it_found(conn: Connection) -> None:
    block = recursion("UNION")
    conn.execute("CREATE SCHEMA millstream_state")
    conn.execute(sql.SQL("CREATE TABLE {} (part uuid, c0 int)").format(NAMES.materialized))
    for statement in tables_sql(block, NAMES):
        conn.execute(statement)
    rows = "INSERT INTO {} VALUES (NULL, 7, 1, 1), (NULL, 8, 1, 2), (NULL, 9, -1, 2)"
    conn.execute(sql.SQL(rows).format(NAMES.steps))
    query = sql.SQL("SELECT c0, __ms_net FROM {} AS s ORDER BY 1")
    found = conn.execute(query.format(step(block, NAMES.steps, 2))).fetchall()
    assert found == [(8, 1), (9, -1)]


def test_the_kind_of_union_decides_what_is_stored() -> None:
    kinds = {union: recursion(union).kind for union in ("UNION", "UNION ALL")}
    assert kinds == {"UNION": "set", "UNION ALL": "levels"}
    create, *_ = create_sql(recursion("UNION"), NAMES)
    assert create.as_string().startswith(f"CREATE TABLE {NAMES.materialized.as_string()}")
