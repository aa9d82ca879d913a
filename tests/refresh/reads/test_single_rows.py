"""Old and new values of single rows: the rows that cross a filter lie between its two bounds."""

from __future__ import annotations

import pytest

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
            before, after = (
                f"{value}::int" if value is not None else "NULL::int" for value in (old, new)
            )
            inside = _between(bound, before, after, old is None, new is None)
            passes = [f"coalesce(v.x {operator} {text}, false)" for text in (before, after)]
            crossed = f"SELECT x FROM generate_series(0, 10) AS v (x) WHERE ({passes[0]}) <> ({passes[1]})"
            missed = f"SELECT x FROM ({crossed}) AS v WHERE NOT coalesce({inside}, false)"
            assert conn.execute(missed.encode()).fetchall() == [], (old, new)


def test_between_equal_bounds_there_is_at_most_the_bound_itself(conn: Connection) -> None:
    inside = _between(Bound(Expr.ref("v", "x"), "<", Expr("unused")), "5", "5", False, False)
    rows = conn.execute(
        f"SELECT x FROM generate_series(0, 10) AS v (x) WHERE {inside}".encode()
    ).fetchall()
    assert rows == [(5,)]


def test_where_both_bounds_are_null_nothing_is_read() -> None:
    assert (
        _between(Bound(Expr.ref("v", "x"), "<", Expr("unused")), "NULL", "NULL", True, True)
        == "false"
    )
