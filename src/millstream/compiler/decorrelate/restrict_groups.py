"""The groups of a subquery, kept only for rows that may ask for them.

    SELECT ... FROM lineitem l JOIN part p ON p.key = l.part
    WHERE p.brand = 'B' AND l.quantity < (SELECT avg(i.quantity) FROM lineitem i WHERE i.part = p.key)

    groups of lineitem i by i.part     one for each part that is sold
    groups of lineitem i, part p2      one for each part of brand B
      where p2.key = i.part and p2.brand = 'B'

The rows around are known to meet the conditions on p alone, so no other part's group is ever asked for. Each row of i
meets one p2 at most, since p2 has one row for each key; so what is aggregated is the same.

When a part becomes of brand B, its items are read, by i.part. That must be no new burden: it is done only where the
query around reads the same table by the same column anyway, as it does here for l.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, all_of, conjuncts, equated, unwrapped
from millstream.algebra.relation import Filter, Join, Relation, Scan
from millstream.compiler.decorrelate.bindings import correlation_equalities


@dataclass(frozen=True)
class _Correlation:
    """An equality of a column of a table in the subquery and one of a table around it."""

    inner: Scan
    own: Ref
    asking: Ref


def restrict_groups(
    relation: Relation, correlations: Sequence[Expr], around: Relation, fresh: Callable[[str], str]
) -> Relation:
    """Rows of a subquery, without those that no row around it can ask for, as far as one table around tells."""
    tables = {one.alias: one for one in _certain(around)}
    conditions = list(_conditions(around))
    found = list(_correlations(relation, correlations))
    for asking in tables.values():
        own = [
            correlation
            for correlation in found
            if correlation.asking.alias == asking.alias and _alike(correlation, asking)
        ]
        local = [one for one in conditions if one.aliases == {asking.alias} and not one.late]
        own = [correlation for correlation in own if _read_anyway(correlation, tables, conditions)]
        if local and _is_one_row(asking, own):
            copy = Scan(asking.table, fresh(asking.alias))
            over = {ref: Expr.ref(copy.alias, ref.column) for ref in asking.columns}
            same = [Expr.parse(f"{correlation.own.sql} = {over[correlation.asking].sql}") for correlation in own]
            relation = Join(relation, Filter(copy, all_of(one.substitute(over) for one in local)), all_of(same))
    return relation


def _certain(relation: Relation) -> Iterator[Scan]:
    """The tables that have a row in each row of a relation."""
    if isinstance(relation, Scan) and relation.table.stored and not relation.expansions:
        yield relation
    elif isinstance(relation, Filter):
        yield from _certain(relation.input)
    elif isinstance(relation, Join) and relation.kind != "full":
        yield from _certain(relation.left)
        yield from _certain(relation.right) if relation.kind == "inner" else ()


def _conditions(relation: Relation) -> Iterator[Expr]:
    """What is true of each row of a relation."""
    if isinstance(relation, Filter):
        yield from conjuncts(relation.predicate)
        yield from _conditions(relation.input)
    elif isinstance(relation, Join) and relation.kind != "full":
        yield from _conditions(relation.left)
        if relation.kind == "inner":
            yield from conjuncts(relation.condition) if relation.condition else ()
            yield from _conditions(relation.right)


def _correlations(relation: Relation, correlations: Sequence[Expr]) -> Iterator[_Correlation]:
    scans = {node.alias: node for node in _joined(relation) if isinstance(node, Scan)}
    for correlation in correlations:
        for own, value in correlation_equalities([correlation], relation) or ():
            inside, around = own.as_ref, value.as_ref
            if isinstance(unwrapped(correlation.tree), exp.EQ) and inside and around and inside.alias in scans:
                yield _Correlation(scans[inside.alias], inside, around)


def _joined(relation: Relation) -> Iterator[Relation]:
    """What is joined in a relation, not what is grouped in it."""
    yield relation
    for one in relation.inputs if isinstance(relation, Join | Filter) else ():
        yield from _joined(one)


def _alike(correlation: _Correlation, asking: Scan) -> bool:
    """Of one type: then equal is what it is in the table's own key."""
    one, other = correlation.inner.table.column(correlation.own.column), asking.table.column(correlation.asking.column)
    return one is not None and other is not None and one.type == other.type


def _is_one_row(asking: Scan, correlations: Sequence[_Correlation]) -> bool:
    """Does a row of the subquery meet at most one of the table?"""
    key = set(asking.table.key)
    return bool(key) and key <= {correlation.asking.column for correlation in correlations}


def _read_anyway(correlation: _Correlation, tables: Mapping[str, Scan], conditions: Sequence[Expr]) -> bool:
    """Is the subquery's table joined to the asking one by these columns in the query around, too?"""
    sides = [{side.as_ref for side in equated(one) or ()} for one in conditions]
    others = [
        ref for pair in sides if correlation.asking in pair for ref in pair if ref is not None and ref.alias in tables
    ]
    same = (correlation.inner.table.oid, correlation.own.column)
    return any((tables[ref.alias].table.oid, ref.column) == same for ref in others if ref != correlation.asking)
