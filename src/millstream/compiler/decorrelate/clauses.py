"""Clauses of a subquery that is computed for all bindings at once: LIMIT, joins, aggregates without
GROUP BY.

LIMIT 3                    row_number() OVER (PARTITION BY bindings ORDER BY ...) <= 3
a RIGHT JOIN b             both sides are joined to the bindings, and the bindings must be equal
count(*) over no rows      the bindings left-joined to the groups: 0 where there is no group
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr, all_of, unwrapped
from millstream.algebra.relation import (
    Aggregate,
    Filter,
    Join,
    Measure,
    Named,
    Order,
    Project,
    Relation,
)
from millstream.algebra.types import PgType
from millstream.compiler.clauses.windows import build_windows
from millstream.compiler.decorrelate.bindings import (
    Bindings,
    binding_name,
    not_distinct,
    output_refs,
)
from millstream.compiler.decorrelate.row_checks import without_row_checks
from millstream.compiler.decorrelate.scope import Scope, ScopedRows
from millstream.errors import Unsupported

FreshAlias = Callable[[str], str]

# The value of an aggregate over no rows; all others of the server's own are NULL.
VALUE_OF_NO_ROWS = {
    "count": "0",
    "regr_count": "0",
    "rank": "1",
    "dense_rank": "1",
    "percent_rank": "0",
    "cume_dist": "1",
}


@dataclass(frozen=True)
class OutputColumns:
    """The output columns of a query, and the number of binding columns after them."""

    names: tuple[str, ...]
    binding_count: int
    types: Callable[[], tuple[PgType, ...]]
    """Asks the server for the types of the output columns."""


def limit_per_binding(
    query: exp.Expression,
    relation: Relation,
    order: Sequence[Order],
    output: OutputColumns,
    fresh: FreshAlias,
) -> Relation:
    """Apply LIMIT and OFFSET to the rows of each binding."""
    columns, keys = output_refs(relation, output.binding_count)
    relation, checked = without_row_checks(relation, [term.expr for term in order])
    shown = [Expr(ref.sql) for ref in columns[: len(output.names)]]
    beside = list(dict.fromkeys(ref for expr in checked.values() for ref in sorted(expr.refs)))
    outputs = [*shown, *(Expr(ref.sql) for ref in (*keys, *beside))]
    partition_by = f"PARTITION BY {', '.join(ref.sql for ref in keys)}"
    # A constant does not order rows, and ORDER BY would read a number as a column's position.
    sort_terms = [term.sql for term in order if term.expr.refs]
    total_order = [*sort_terms, *tie_breakers(shown, output.types())]
    numbers = [f"row_number() OVER ({partition_by} {_order_by(total_order)})"]
    if _has_ties(query):
        numbers.append(f"rank() OVER ({partition_by} {_order_by(sort_terms)})")
    relation, exprs = build_windows(relation, [*outputs, *map(Expr.parse, numbers)], fresh)
    limited = Filter(relation, _limit_condition(query, exprs[len(outputs)].sql, exprs[-1].sql))
    carried = dict(zip(beside, exprs[len(outputs) - len(beside) :], strict=False))
    for place, ref in enumerate(columns[: len(shown)]):
        exprs[place] = checked[ref].substitute(carried) if ref in checked else exprs[place]
    names = [*output.names, *map(binding_name, range(output.binding_count))]
    return Project(
        limited,
        tuple(Named(name, expr) for name, expr in zip(names, exprs, strict=False)),
        fresh("q"),
    )


def _order_by(terms: Sequence[str]) -> str:
    return f"ORDER BY {', '.join(terms)}" if terms else ""


def tie_breakers(columns: Sequence[Expr], types: Sequence[PgType]) -> list[str]:
    """Return sort terms that make an order total: all columns, as text where the type has no order."""
    typed = zip(columns, types, strict=True)
    return [
        column.sql if type_.comparable else f"CAST({column.sql} AS TEXT)"
        for column, type_ in typed
        if column.refs
    ]


def _has_ties(query: exp.Expression) -> bool:
    """Return True for FETCH FIRST ... WITH TIES."""
    limit = query.args.get("limit")
    options = limit.args.get("limit_options") if isinstance(limit, exp.Fetch) else None
    return bool(options and options.args.get("with_ties"))


def _limit_condition(query: exp.Expression, number: str, position: str) -> Expr:
    """Return the condition of OFFSET on the row number and of LIMIT on the position, which WITH
    TIES is the rank.
    """
    limit = query.args.get("limit")
    offset = query.args.get("offset")
    skipped = _constant(offset.expression) if offset else "0"
    conditions = [f"{number} > {skipped}"] if offset else []
    if limit is not None:
        count_node = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
        count = _constant(count_node) if count_node is not None else "1"
        conditions.append(
            f"{position} <= {count} + {skipped}" if offset else f"{position} <= {count}"
        )
    return all_of(map(Expr.parse, conditions))


def _constant(node: exp.Expression) -> str:
    """Return a literal number of rows as it is written; raise Unsupported for anything else."""
    inner = unwrapped(node)
    if isinstance(inner, exp.Cast):
        return _constant(inner.this)
    if not isinstance(inner, exp.Literal) or not inner.name.isdigit():
        raise Unsupported.construct(
            f"LIMIT or OFFSET by {printed(node)} in a correlated subquery",
            reason="Only a constant is certainly the same for all outer rows, and not negative.",
            way_round="Write a number, or number the rows with row_number() and compare that.",
            node=node,
        )
    return str(inner.name)


@dataclass(frozen=True)
class BoundSides:
    """Both sides of a join after the bindings are joined to them, and the conditions that make
    these equal.
    """

    left: ScopedRows
    right: ScopedRows
    conditions: tuple[Expr, ...] = ()


def bind_join_sides(
    sides: BoundSides, side: str, bindings: Bindings, fresh: FreshAlias
) -> BoundSides:
    """Join the bindings to each side that must have them; `side` is that of the SQL join: LEFT,
    RIGHT, FULL or ''.

    The preserved side of an outer join must have them if the other one does: each of its rows
    appears once per binding, matched or not.
    """
    left, right = sides.left, sides.right
    if not left.scope.bindings and not right.scope.bindings:
        return sides
    if not left.scope.bindings and side in ("LEFT", "FULL"):
        left = bindings.join_to(left, fresh("given"))
    if not right.scope.bindings and side in ("RIGHT", "FULL"):
        right = bindings.join_to(right, fresh("given"))
    if not left.scope.bindings:
        scope = left.scope.with_bindings(right.scope.bindings, right.scope.casts)
        return BoundSides(ScopedRows(left.rows, scope), right)
    if not right.scope.bindings:
        return BoundSides(left, right)
    pairs = [(left.scope.bindings[value], right.scope.bindings[value]) for value in bindings.values]
    return BoundSides(left, right, tuple(not_distinct(own, other) for own, other in pairs))


def bindings_above_join(joined: Scope, right: Scope, side: str) -> Scope:
    """Return the scope of a join with the bindings of its preserved side, or of either side of a
    FULL JOIN.
    """
    if right.bindings and side == "RIGHT":
        return joined.with_bindings(right.bindings, right.casts)
    if right.bindings and side == "FULL":
        pairs = [(value, expr, right.bindings[value]) for value, expr in joined.bindings.items()]
        either = {
            value: Expr.parse(f"COALESCE({expr.sql}, {other.sql})") for value, expr, other in pairs
        }
        return joined.with_bindings(either, joined.casts)
    return joined


def one_row_per_binding(groups: Aggregate, bindings: Bindings, fresh: FreshAlias) -> Relation:
    """Return one row per binding for aggregates without GROUP BY; without a group, the values over
    no rows.
    """
    matched = replace(groups, alias=fresh(f"{groups.alias}_met"))
    rows = bindings.distinct_values(fresh("given"))
    pairs = list(zip(rows.columns, matched.keys, strict=True))
    correlations = [
        not_distinct(Expr(ref.sql), Expr.ref(matched.alias, key.name)) for ref, key in pairs
    ]
    keys = [Named(key.name, Expr(ref.sql)) for ref, key in pairs]
    measures = [
        Named(measure.name, measure_or_default(measure, matched.alias))
        for measure in matched.measures
    ]
    return Project(
        Join(rows, matched, all_of(correlations), "left"), (*keys, *measures), groups.alias
    )


def measure_or_default(measure: Measure, alias: str) -> Expr:
    """Return a measure's column, with its value over no rows where the left join finds no group.

    Raise Unsupported for a user's aggregate: its value over no rows is not known.
    """
    function = measure.call.function
    if "." in function:
        raise Unsupported.construct(
            f"the aggregate {function} in a correlated subquery that may have no rows",
            reason="The result over no rows is known only for PostgreSQL's own aggregates.",
            way_round="Group by the correlated columns, and join the subquery.",
        )
    ref = Expr.ref(alias, measure.name)
    return (
        Expr.parse(f"COALESCE({ref.sql}, {VALUE_OF_NO_ROWS[function]})")
        if function in VALUE_OF_NO_ROWS
        else ref
    )
