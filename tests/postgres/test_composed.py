"""Statements are composed of parts that say what they are."""

from __future__ import annotations

from psycopg import sql

from millstream.postgres.composed import Printed, aliased, listed, row_text
from millstream.postgres.connection import Connection


def test_printed_text_keeps_its_braces_and_percent_signs(conn: Connection) -> None:
    query = sql.SQL("SELECT {}").format(Printed("'{x}' || '%s'"))
    assert conn.execute(query).fetchall() == [("{x}%s",)]


def test_names_are_quoted_and_printed_text_is_not() -> None:
    parts = [aliased(Printed("a + 1"), 'my "sum"'), sql.Identifier("t", "b")]
    assert listed(parts).as_string() == 'a + 1 AS "my ""sum""", "t"."b"'


def test_the_text_of_a_row_tells_null_from_an_empty_text(conn: Connection) -> None:
    texts = [row_text([sql.Literal(value), sql.Literal("x")]) for value in ("", None)]
    empty, null = conn.execute(sql.SQL("SELECT {}").format(listed(texts))).fetchall()[0]
    assert (empty, null) == ('("",x)', "(,x)")
