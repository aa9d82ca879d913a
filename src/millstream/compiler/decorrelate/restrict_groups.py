"""Restrict the groups of a subquery to those that an outer row can read (as magic sets do).

    SELECT ... FROM lineitem l JOIN part p ON p.key = l.part
    WHERE p.brand = 'B' AND l.quantity < (SELECT avg(i.quantity) FROM lineitem i WHERE i.part = p.key)

    groups of lineitem i by i.part     one for each part that is sold
    groups of lineitem i, part p2      one for each part of brand B
      where p2.key = i.part and p2.brand = 'B'

Every outer row satisfies the conditions on p, so it never reads the group of another part. p2 is
unique by its key: a row of i joins at most one row of p2, so the aggregates stay the same.

When a part becomes one of brand B, its items must be read by i.part. So that this costs nothing
new, the rule applies only if the outer query reads the same table by the same column anyway, as it
does here for l.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, all_of, conjuncts, equated, unwrapped
from millstream.algebra.relation import Filter, Join, Relation, Scan
from millstream.algebra.table import SourceTable
from millstream.compiler.decorrelate.correlation import correlation_equalities


@dataclass(frozen=True)
class _ColumnEquality:
    """A correlation `inner = outer` of two columns of tables."""

    inner_scan: Scan
    inner: Ref
    outer: Ref


def restrict_groups(
    relation: Relation,
    correlations: Sequence[Expr],
    outer_rows: Relation,
    fresh: Callable[[str], str],
) -> Relation:
    """Return the rows of a subquery joined to a filtered copy of each outer table that restricts
    them.

    Return them unchanged if no outer table qualifies.
    """
    outer_scans = {scan.alias: scan for scan in _certain(outer_rows)}
    conditions = list(_conditions(outer_rows))
    equalities = list(_column_equalities(relation, correlations))
    for outer_scan in outer_scans.values():
        usable = [
            equality
            for equality in equalities
            if equality.outer.alias == outer_scan.alias
            and _has_equal_types(equality, outer_scan)
            and _is_read_anyway(equality, outer_scans, conditions)
        ]
        filters = [condition for condition in conditions if _filters_only(condition, outer_scan)]
        if filters and _covers_key(outer_scan, usable):
            relation = _join_filtered_copy(relation, outer_scan, usable, filters, fresh)
    return relation


def _join_filtered_copy(
    relation: Relation,
    outer_scan: Scan,
    equalities: Sequence[_ColumnEquality],
    filters: Sequence[Expr],
    fresh: Callable[[str], str],
) -> Relation:
    copy = Scan(outer_scan.table, fresh(outer_scan.alias))
    columns = {ref: Expr.ref(copy.alias, ref.column) for ref in outer_scan.columns}
    on = [
        Expr.parse(f"{equality.inner.sql} = {columns[equality.outer].sql}")
        for equality in equalities
    ]
    filtered = Filter(copy, all_of(condition.substitute(columns) for condition in filters))
    return Join(relation, filtered, all_of(on))


def _filters_only(condition: Expr, scan: Scan) -> bool:
    """Return True if a condition is over one table alone and cannot raise "more than one row
    returned".
    """
    return condition.aliases == {scan.alias} and not condition.has_subquery


def _certain(relation: Relation) -> Iterator[Scan]:
    """Yield the tables that have a row in each row of a relation: none that is null-extended."""
    if (
        isinstance(relation, Scan)
        and isinstance(relation.table, SourceTable)
        and not relation.expansions
    ):
        yield relation
    elif isinstance(relation, Filter):
        yield from _certain(relation.input)
    elif isinstance(relation, Join) and relation.kind != "full":
        yield from _certain(relation.left)
        yield from _certain(relation.right) if relation.kind == "inner" else ()


def _conditions(relation: Relation) -> Iterator[Expr]:
    """Yield conditions that every row of a relation satisfies: not ON of an outer join."""
    if isinstance(relation, Filter):
        yield from conjuncts(relation.predicate)
        yield from _conditions(relation.input)
    elif isinstance(relation, Join) and relation.kind != "full":
        yield from _conditions(relation.left)
        if relation.kind == "inner":
            yield from conjuncts(relation.condition) if relation.condition else ()
            yield from _conditions(relation.right)


def _column_equalities(
    relation: Relation, correlations: Sequence[Expr]
) -> Iterator[_ColumnEquality]:
    """Yield the correlations that are a plain `=` of a column of a joined table and an outer
    column.
    """
    scans = {node.alias: node for node in _joined_nodes(relation) if isinstance(node, Scan)}
    for correlation in correlations:
        is_plain = isinstance(unwrapped(correlation.tree), exp.EQ)
        for inner_side, outer_side in correlation_equalities([correlation], relation) or ():
            inner, outer = inner_side.as_ref, outer_side.as_ref
            if is_plain and inner and outer and inner.alias in scans:
                yield _ColumnEquality(scans[inner.alias], inner, outer)


def _joined_nodes(relation: Relation) -> Iterator[Relation]:
    """Yield the nodes of a relation above any grouping or projection."""
    yield relation
    for input_ in relation.inputs if isinstance(relation, Join | Filter) else ():
        yield from _joined_nodes(input_)


def _has_equal_types(equality: _ColumnEquality, outer_scan: Scan) -> bool:
    """Return True if both columns have one type: only then is `=` the equality of the table's key."""
    inner = equality.inner_scan.table.column(equality.inner.column)
    outer = outer_scan.table.column(equality.outer.column)
    return inner is not None and outer is not None and inner.type == outer.type


def _covers_key(outer_scan: Scan, equalities: Sequence[_ColumnEquality]) -> bool:
    """Return True if equalities name all columns of the table's key: a row of the subquery joins at
    most one row.
    """
    key = set(outer_scan.table.key)
    return bool(key) and key <= {equality.outer.column for equality in equalities}


def _is_read_anyway(
    equality: _ColumnEquality, outer_scans: Mapping[str, Scan], conditions: Sequence[Expr]
) -> bool:
    """Return True if the outer query, too, joins the subquery's table to the outer table by these
    columns.
    """
    wanted = (equality.inner_scan.table, equality.inner.column)
    for condition in conditions:
        sides = {side.as_ref for side in equated(condition) or ()}
        if equality.outer not in sides:
            continue
        for ref in sides - {equality.outer, None}:
            assert ref is not None
            if ref.alias in outer_scans and (outer_scans[ref.alias].table, ref.column) == wanted:
                return True
    return False
