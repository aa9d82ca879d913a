"""DISTINCT and the set operations become aggregates by all columns.

DISTINCT, UNION              the groups
INTERSECT, EXCEPT            the groups with rows of both sides, or of the first side only
INTERSECT ALL, EXCEPT ALL    each row min(left, right) times, or left - right times
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import (
    Aggregate,
    Call,
    Expand,
    Expansion,
    Filter,
    Measure,
    Named,
    Project,
    Relation,
    UnionAll,
)
from millstream.algebra.types import PgType
from millstream.compiler.decorrelate.clauses import FreshAlias

INT4 = PgType(23, "integer", "int4")


def distinct_rows(relation: Relation, fresh: FreshAlias) -> Relation:
    """Return each row once: the groups by all columns."""
    keys = tuple(Named(f"k{n}", Expr(ref.sql)) for n, ref in enumerate(relation.columns))
    groups = Aggregate(relation, keys, (), fresh("d"))
    return _named_like(relation, groups, fresh)


def _named_like(relation: Relation, groups: Relation, fresh: FreshAlias) -> Relation:
    """Give the columns of groups the names of the columns that they are grouped by."""
    pairs = zip(relation.columns, groups.columns, strict=False)
    outputs = tuple(Named(ref.column, Expr(key.sql)) for ref, key in pairs)
    return Project(groups, outputs, fresh("q"))


def flatten_chain(query: exp.SetOperation) -> list[exp.SetOperation]:
    """Return the operations of a chain of UNION or UNION ALL, innermost first; any other operation
    alone.

    A UNION at the end removes all duplicates, so the operations before it may be UNION ALL.
    """
    operations = [query]
    while isinstance(operations[-1], exp.Union):
        before = operations[-1].this
        if not isinstance(before, exp.Union) or any(
            before.args.get(clause) for clause in _OWN_CLAUSES
        ):
            break
        if before.args.get("distinct") and not query.args.get("distinct"):
            break
        operations.append(before)
    return operations[::-1]


# Clauses of a parenthesized query in a chain: it cannot be flattened.
_OWN_CLAUSES = ("order", "limit", "offset", "with_")

Types = tuple[PgType, ...]


def types_of_each(
    operations: Sequence[exp.SetOperation], types: Callable[[exp.Expression], Types]
) -> list[Types]:
    """Return the output types of each operation of a chain.

    PostgreSQL resolves types pair by pair, and casts: bpchar united with text loses its trailing
    spaces. A part with the types of the parts before it does not change them, so the server need
    not be asked about the whole chain.
    """
    of_each = [types(operations[0])]
    for operation in operations[1:]:
        before = of_each[-1]
        of_each.append(before if types(operation.expression) == before else types(operation))
    return of_each


def combine_rows(
    query: exp.SetOperation,
    parts: list[Relation],
    names: tuple[str, ...],
    types: Sequence[Types],
    fresh: FreshAlias,
) -> Relation:
    """Combine the rows of several queries; `types` has the output types of each operation."""
    if not isinstance(query, exp.Union):
        return _combine_by_counts(query, parts, names, types[0], fresh)
    united = parts[0]
    # Parts between which the types do not change are united at once.
    for own, together in groupby(zip(types, parts[1:], strict=True), key=itemgetter(0)):
        united = UnionAll((united, *(part for _, part in together)), names, own, fresh("u"))
    return distinct_rows(united, fresh) if query.args.get("distinct") else united


def _combine_by_counts(
    query: exp.SetOperation,
    parts: list[Relation],
    names: tuple[str, ...],
    types: Types,
    fresh: FreshAlias,
) -> Relation:
    """Build INTERSECT and EXCEPT from the number of times that each row occurs on either side."""
    groups = _count_sides(parts, types, fresh)
    if not query.args.get("distinct"):
        return _repeat(query, groups, names, fresh)
    left, right = (Ref(groups.alias, measure.name).sql for measure in groups.measures)
    right_test = f"{right} > 0" if isinstance(query, exp.Intersect) else f"{right} = 0"
    filtered = Filter(groups, Expr.parse(f"{left} > 0 AND {right_test}"))
    outputs = tuple(Named(name, Expr.ref(groups.alias, f"k{n}")) for n, name in enumerate(names))
    return Project(filtered, outputs, fresh("q"))


def _count_sides(parts: Sequence[Relation], types: Types, fresh: FreshAlias) -> Aggregate:
    """Return each distinct row of two relations: keys k0, k1, ...; m0 and m1 count the rows of
    either side.
    """
    width = len(parts[0].columns)
    sides = tuple(_numbered_side(part, number, fresh) for number, part in enumerate(parts))
    columns = [f"c{n}" for n in range(width)]
    united = UnionAll(sides, (*columns, "side"), (*types, INT4), fresh("u"))
    keys = tuple(Named(f"k{n}", Expr.ref(united.alias, column)) for n, column in enumerate(columns))
    measures = list[Measure]()
    for number in (0, 1):
        of_side = Expr.parse(f"{Ref(united.alias, 'side').sql} = {number}")
        measures.append(Measure(f"m{number}", Call("count", None, of_side)))
    return Aggregate(united, keys, tuple(measures), fresh("d"))


def _numbered_side(part: Relation, number: int, fresh: FreshAlias) -> Project:
    outputs = tuple(Named(f"c{n}", Expr(ref.sql)) for n, ref in enumerate(part.columns))
    return Project(part, (*outputs, Named("side", Expr(str(number)))), fresh("side"))


def _repeat(
    query: exp.SetOperation, groups: Aggregate, names: tuple[str, ...], fresh: FreshAlias
) -> Relation:
    """Repeat each row of INTERSECT ALL min(left, right) times, of EXCEPT ALL left - right times."""
    left, right = (Ref(groups.alias, measure.name).sql for measure in groups.measures)
    times = f"LEAST({left}, {right})" if isinstance(query, exp.Intersect) else f"({left} - {right})"
    call = Expansion(
        fresh("times"), ("n",), Expr.parse(f"generate_series(CAST(1 AS BIGINT), {times})")
    )
    rows = Expand(groups, call, fresh("x"))
    outputs = tuple(Named(name, Expr.ref(rows.alias, f"c{n}")) for n, name in enumerate(names))
    return Project(rows, outputs, fresh("q"))
