"""Join rows with the clock where a query asks of them what time it is: those of FROM, of a join's side, or groups."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Join, Relation, Scan
from millstream.sql import clock
from millstream.sql.carried import Fresh
from millstream.sql.clock import CLOCK
from millstream.sql.grouping import Aggregates
from millstream.sql.host import Host
from millstream.sql.scope import Scope


def with_clock(select: exp.Select, relation: Relation, scope: Scope, aggregates: Aggregates, fresh: Fresh) -> Relation:
    """The rows of FROM beside the clock, where a SELECT asks of them what time it is."""
    asking = clock.columns(select)
    if not asking:
        return relation
    if aggregates.group(select):
        asking = [one for one in asking if clock.grouped(one, select, aggregates.called)]
    beside = beside_clock(relation, scope, fresh)
    return beside if asking else relation


def beside_clock(relation: Relation, scope: Scope, fresh: Fresh) -> Relation:
    """Each row with the time; from here on the scope knows it."""
    scan = Scan(CLOCK, fresh("clock"))
    scope.columns[clock.COLUMN] = scan.columns[0]
    return Join(relation, scan)


def beside_groups(scope: Scope, host: Host, exprs: Sequence[Expr], fresh: Fresh) -> list[Expr]:
    """Expressions over groups; one that asks what time it is asks a clock beside the groups."""
    below = scope.columns.get(clock.COLUMN)
    if below is None or not any(below in one.refs for one in exprs):
        return list(exprs)
    scan = Scan(CLOCK, fresh("clock"))
    host.join(scan, None, "inner")
    return [one.substitute({below: Expr(scan.columns[0].sql)}) for one in exprs]
