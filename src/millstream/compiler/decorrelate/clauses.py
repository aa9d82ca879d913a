"""What becomes of LIMIT, of joins and of aggregates where a subquery is computed for many given values at once.

LIMIT 3                    row_number() OVER (PARTITION BY given ORDER BY ...) <= 3
a RIGHT JOIN b             each side has the given values beside it, and they must be the same
count(*), of no rows       the given values left joined to the groups: 0 where there is none
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr, all_of, unwrapped
from millstream.algebra.relation import Aggregate, Filter, Join, Measure, Named, Order, Project, Relation
from millstream.algebra.types import PgType
from millstream.compiler.clauses.windows import build_windows
from millstream.compiler.decorrelate.bindings import BINDINGS, Bindings, not_distinct, output_refs
from millstream.compiler.decorrelate.scope import Scope
from millstream.errors import Unsupported

FreshAlias = Callable[[str], str]

# What an aggregate is of nothing; all others of the server's own are NULL.
VALUE_OF_NO_ROWS = {
    "count": "0",
    "regr_count": "0",
    "rank": "1",
    "dense_rank": "1",
    "percent_rank": "0",
    "cume_dist": "1",
}


def limit_per_binding(
    query: exp.Expression,
    relation: Relation,
    names: Sequence[str],
    order: Sequence[Order],
    binding_refs: int,
    types: Sequence[PgType],
    fresh: FreshAlias,
) -> Relation:
    """LIMIT and OFFSET for each of the carried values."""
    columns, keys = output_refs(relation, binding_refs)
    shown = [Expr(ref.sql) for ref in columns[: len(names)]]
    outputs = [*shown, *(Expr(ref.sql) for ref in keys)]
    by = f"PARTITION BY {', '.join(ref.sql for ref in keys)}"
    # A constant orders nothing, and a number would be read as a column's place.
    asked = [one.sql for one in order if one.expr.refs]
    numbers = [f"row_number() OVER ({by} {_ordered([*asked, *tie_breakers(shown, types)])})"]
    numbers += [f"rank() OVER ({by} {_ordered(asked)})"] if _with_ties(query) else []
    relation, exprs = build_windows(relation, [*outputs, *map(Expr.parse, numbers)], fresh)
    first = Filter(relation, _between(query, exprs[len(outputs)].sql, exprs[-1].sql))
    called = [*names, *(f"{BINDINGS}{n}" for n in range(binding_refs))]
    return Project(first, tuple(Named(name, one) for name, one in zip(called, exprs, strict=False)), fresh("q"))


def _ordered(order: Sequence[str]) -> str:
    return f"ORDER BY {', '.join(order)}" if order else ""


def tie_breakers(shown: Sequence[Expr], types: Sequence[PgType]) -> list[str]:
    """What tells rows apart that an order leaves equal: all columns; what has no order, by its text."""
    found = zip(shown, types, strict=True)
    return [one.sql if type_.comparable else f"CAST({one.sql} AS TEXT)" for one, type_ in found if one.refs]


def _with_ties(query: exp.Expression) -> bool:
    limit = query.args.get("limit")
    options = limit.args.get("limit_options") if isinstance(limit, exp.Fetch) else None
    return bool(options and options.args.get("with_ties"))


def _between(query: exp.Expression, number: str, position: str) -> Expr:
    """By the row's number, and up to where; with ties by its rank."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    skipped = _constant(offset.expression) if offset else "0"
    conditions = [f"{number} > {skipped}"] if offset else []
    if limit is not None:
        asked = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
        count = _constant(asked) if asked is not None else "1"
        conditions.append(f"{position} <= {count} + {skipped}" if offset else f"{position} <= {count}")
    return all_of(Expr.parse(one) for one in conditions)


def _constant(node: exp.Expression) -> str:
    """A number of rows, as it is written."""
    inner = unwrapped(node)
    if isinstance(inner, exp.Cast):
        return _constant(inner.this)
    if not isinstance(inner, exp.Literal) or not inner.name.isdigit():
        raise Unsupported.construct(
            f"LIMIT or OFFSET by {printed(node)} in a subquery that is given values",
            reason="Only a number is known to be the same for all of them, and not to be negative.",
            way_round="Write a number, or number the rows with row_number() and compare that.",
        )
    return str(inner.name)


def bind_join_sides(
    left: Relation, right: Relation, scope: Scope, own: Scope, side: str, bindings: Bindings, fresh: FreshAlias
) -> tuple[Relation, Relation, list[Expr]]:
    """Both sides of a join, with what is given beside those that need it, and what makes it the same."""
    if not scope.bindings and not own.bindings:
        return left, right, []
    if not scope.bindings and side in ("LEFT", "FULL"):
        left = bindings.joined(left, scope, fresh("given"))
    if not own.bindings and side in ("RIGHT", "FULL"):
        right = bindings.joined(right, own, fresh("given"))
    both = [
        (value, scope.bindings[value], own.bindings[value])
        for value in bindings.values
        if scope.bindings and own.bindings
    ]
    if not scope.bindings:
        scope.bindings, scope.casts = own.bindings, own.casts
    return left, right, [not_distinct(one, other) for _, one, other in both]


def bindings_after_join(scope: Scope, own: Scope, side: str) -> None:
    """After a join: what is given is that of the side which has a row for sure, or of either."""
    if own.bindings and side == "RIGHT":
        scope.bindings, scope.casts = own.bindings, own.casts
    elif own.bindings and side == "FULL":
        pairs = [(value, one, own.bindings[value]) for value, one in scope.bindings.items()]
        scope.bindings = {value: Expr.parse(f"COALESCE({one.sql}, {other.sql})") for value, one, other in pairs}


def one_row_per_binding(groups: Aggregate, bindings: Bindings, fresh: FreshAlias) -> Relation:
    """Groups by the given values alone; values without a group have what the aggregates are of nothing."""
    met, rows = replace(groups, alias=fresh(f"{groups.alias}_met")), bindings.rows(fresh("given"))
    correlations = [
        not_distinct(Expr(ref.sql), Expr.ref(met.alias, key.name))
        for ref, key in zip(rows.columns, met.keys, strict=True)
    ]
    keys = [Named(key.name, Expr(ref.sql)) for ref, key in zip(rows.columns, met.keys, strict=True)]
    measures = [Named(one.name, measure_or_default(one, met.alias)) for one in met.measures]
    return Project(Join(rows, met, all_of(correlations), "left"), (*keys, *measures), groups.alias)


def measure_or_default(measure: Measure, alias: str) -> Expr:
    """A measure of a group that may not be there."""
    function = measure.call.function
    if "." in function:
        raise Unsupported.construct(
            f"the aggregate {function} in a subquery that may aggregate nothing",
            reason="What it is of no rows is known for the server's own aggregates only.",
            way_round="Group by the columns that tie the subquery, and join it.",
        )
    ref = Expr.ref(alias, measure.name)
    return Expr.parse(f"COALESCE({ref.sql}, {VALUE_OF_NO_ROWS[function]})") if function in VALUE_OF_NO_ROWS else ref
