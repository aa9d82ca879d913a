"""Old and new values of single rows: the rows that cross a filter lie between its two bounds."""

from __future__ import annotations

import pytest
from psycopg import sql

from millstream.algebra.expr import Expr
from millstream.algebra.temporal_filter import Bound
from millstream.postgres.connection import Connection
from millstream.refresh.reads.single_rows import _between

VALUES = (3, 7, None)


@pytest.mark.parametrize("operator", ["<", "<=", "=", ">=", ">"])
def test_every_row_that_crosses_the_filter_lies_in_the_range(
    conn: Connection, operator: str
) -> None:
    """A comparison with NULL is passed by no row, so against it every row that passes the other
    bound crosses.
    """
    bound = Bound(Expr.ref("v", "x"), operator, Expr("unused"))
    for old in VALUES:
        for new in VALUES:
            before, after = (sql.SQL("{}::int").format(value) for value in (old, new))
            inside = _between(bound, before, after, old is None, new is None).as_string()
            passes = [
                f"coalesce(v.x {operator} {value.as_string()}, false)" for value in (before, after)
            ]
            crossed = f"SELECT x FROM generate_series(0, 10) AS v (x) WHERE ({passes[0]}) <> ({passes[1]})"
            missed = f"SELECT x FROM ({crossed}) AS v WHERE NOT coalesce({inside}, false)"
            assert conn.execute(missed.encode()).fetchall() == [], (old, new)


def test_between_equal_bounds_there_is_at_most_the_bound_itself(conn: Connection) -> None:
    bound = Bound(Expr.ref("v", "x"), "<", Expr("unused"))
    inside = _between(bound, sql.Literal(5), sql.Literal(5), False, False)
    query = sql.SQL("SELECT x FROM generate_series(0, 10) AS v (x) WHERE {}").format(inside)
    rows = conn.execute(query).fetchall()
    assert rows == [(5,)]


def test_where_both_bounds_are_null_nothing_is_read() -> None:
    bound, null = Bound(Expr.ref("v", "x"), "<", Expr("unused")), sql.SQL("NULL")
    assert _between(bound, null, null, True, True) == sql.SQL("false")
