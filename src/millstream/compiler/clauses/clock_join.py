"""Join rows with the clock where a query asks of them what time it is: those of FROM, of a join's side, or groups."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Join, Relation, Scan
from millstream.compiler.clauses import clock
from millstream.compiler.clauses.clock import CLOCK
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.decorrelate.attach import Host
from millstream.compiler.decorrelate.clauses import FreshAlias
from millstream.compiler.decorrelate.scope import Scope


def join_clock_to_from(
    select: exp.Select, relation: Relation, scope: Scope, aggregates: Aggregates, fresh: FreshAlias
) -> Relation:
    """The rows of FROM beside the clock, where a SELECT asks of them what time it is."""
    asking = clock.clock_columns(select)
    if not asking:
        return relation
    if aggregates.group(select):
        asking = [one for one in asking if clock.is_asked_per_row(one, select, aggregates.called)]
    beside = join_clock(relation, scope, fresh)
    return beside if asking else relation


def join_clock(relation: Relation, scope: Scope, fresh: FreshAlias) -> Relation:
    """Each row with the time; from here on the scope knows it."""
    scan = Scan(CLOCK, fresh("clock"))
    scope.columns[clock.COLUMN] = scan.columns[0]
    return Join(relation, scan)


def join_clock_to_groups(scope: Scope, host: Host, exprs: Sequence[Expr], fresh: FreshAlias) -> list[Expr]:
    """Expressions over groups; one that asks what time it is asks a clock beside the groups."""
    below = scope.columns.get(clock.COLUMN)
    if below is None or not any(below in one.refs for one in exprs):
        return list(exprs)
    scan = Scan(CLOCK, fresh("clock"))
    host.join(scan, None, "inner")
    return [one.substitute({below: Expr(scan.columns[0].sql)}) for one in exprs]
