"""Values of every type: each is one that this server reads."""

from __future__ import annotations

from millstream.postgres.connection import Connection
from millstream.testing.values import TYPES, declare


def test_every_value_of_every_type_that_is_declared_is_read_by_the_server(conn: Connection) -> None:
    known = declare(conn)
    assert len(known) > 50
    assert set(known) <= set(TYPES)
    for name, values in known.items():
        plain = name.split(" COLLATE")[0]
        for value in values:
            conn.execute(f"SELECT CAST(%s AS {plain})".encode(), (value,))


def test_types_that_break_equality_are_among_them() -> None:
    """NaN, negative zero, blanks at the end, an array with another lower bound."""
    assert {"NaN", "-0"} <= set(TYPES["double precision"])
    assert "a  " in TYPES["bpchar"]
    assert "[2:3]={1,2}" in TYPES["integer[]"]
