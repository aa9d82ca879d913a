"""Join the clock to rows whose expressions read the time: the rows of FROM, a side of a join, or
groups.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Join, Scan
from millstream.compiler.clauses import clock
from millstream.compiler.clauses.clock import CLOCK
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.decorrelate.attach import Host
from millstream.compiler.decorrelate.clauses import FreshAlias
from millstream.compiler.decorrelate.scope import Scope, ScopedRows


def join_clock_to_from(
    select: exp.Select, rows: ScopedRows, aggregates: Aggregates, fresh: FreshAlias
) -> ScopedRows:
    """Join the clock to the rows of FROM if an expression of the SELECT reads the time per row.

    If only its groups read the time, return the rows without the clock; the scope knows its column
    all the same.
    """
    clock_columns = clock.clock_columns(select)
    if not clock_columns:
        return rows
    if aggregates.group(select):
        clock_columns = [
            column
            for column in clock_columns
            if clock.is_read_per_row(column, select, aggregates.is_call)
        ]
    joined = join_clock(rows, fresh)
    return joined if clock_columns else joined.over(rows.rows)


def join_clock(rows: ScopedRows, fresh: FreshAlias) -> ScopedRows:
    """Join the clock to rows, and add its column to their scope."""
    scan = Scan(CLOCK, fresh("clock"))
    scope = rows.scope.with_hidden_column(clock.COLUMN, scan.columns[0])
    return ScopedRows(Join(rows.rows, scan), scope)


def join_clock_to_groups(
    scope: Scope, host: Host, exprs: Sequence[Expr], fresh: FreshAlias
) -> list[Expr]:
    """Return expressions over groups; join a clock to the groups if one of them reads the time."""
    row_clock = scope.columns.get(clock.COLUMN)
    if row_clock is None or not any(row_clock in expr.refs for expr in exprs):
        return list(exprs)
    scan = Scan(CLOCK, fresh("clock"))
    host.join(scan, None, "inner")
    return [expr.substitute({row_clock: Expr(scan.columns[0].sql)}) for expr in exprs]
