"""Flatten nested selects into branches: tables, conjuncts and outputs over them.

A filter or projection over a subquery is written into it; a join over UNION ALL is distributed
over its parts. What is left of any query without a stateful operator is a list of branches,

    Branch:  FROM t1, t2, ...  WHERE c1 AND c2 ...  SELECT o1, o2, ...

whose rows together are the query's rows, duplicates kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from millstream.algebra.expr import Expr, Ref, conjuncts
from millstream.algebra.relation import Aggregate, Filter, Join, Project, Relation, Scan, UnionAll
from millstream.algebra.types import PgType
from millstream.errors import Unsupported


@dataclass(frozen=True)
class Flat:
    """One branch: scans, conjuncts over them, and what each output column is in their terms."""

    scans: tuple[Scan, ...]
    conditions: tuple[Expr, ...]
    outputs: Mapping[Ref, Expr]

    def over(self, expression: Expr) -> Expr:
        """An expression over the outputs, in terms of the scans."""
        return expression.substitute(self.outputs)


def flatten(relation: Relation) -> list[Flat]:
    """The branches of a relation that has no stateful operator in it."""
    return _RULES[type(relation)](relation)


def _scan(node: Relation) -> list[Flat]:
    assert isinstance(node, Scan)
    return [Flat((node,), (), {ref: Expr(ref.sql) for ref in node.columns})]


def _filter(node: Relation) -> list[Flat]:
    assert isinstance(node, Filter)
    return [
        Flat(flat.scans, (*flat.conditions, *conjuncts(flat.over(node.predicate))), flat.outputs)
        for flat in flatten(node.input)
    ]


def _project(node: Relation) -> list[Flat]:
    assert isinstance(node, Project)
    return [
        Flat(flat.scans, flat.conditions, {Ref(node.alias, o.name): flat.over(o.expr) for o in node.outputs})
        for flat in flatten(node.input)
    ]


def _join(node: Relation) -> list[Flat]:
    assert isinstance(node, Join)
    return [_pair(node, left, right) for left, right in product(flatten(node.left), flatten(node.right))]


def _pair(node: Join, left: Flat, right: Flat) -> Flat:
    outputs = {**left.outputs, **right.outputs}
    own = tuple(conjuncts(node.condition.substitute(outputs))) if node.condition else ()
    return Flat(left.scans + right.scans, left.conditions + right.conditions + own, outputs)


def _union(node: Relation) -> list[Flat]:
    assert isinstance(node, UnionAll)
    return [
        Flat(flat.scans, flat.conditions, _renamed(node, part.columns, flat.outputs))
        for part in node.parts
        for flat in flatten(part)
    ]


def _renamed(node: UnionAll, columns: tuple[Ref, ...], outputs: Mapping[Ref, Expr]) -> dict[Ref, Expr]:
    """The part's columns under the union's names, cast to the union's types."""
    return {new: _cast(outputs[old], type_) for new, old, type_ in zip(node.columns, columns, node.types, strict=True)}


def _cast(expression: Expr, type_: PgType) -> Expr:
    return Expr.parse(f"CAST({expression.sql} AS {type_.name})")


def _stateful(node: Relation) -> list[Flat]:
    raise Unsupported.construct(
        "an aggregate inside a subquery, a view or a CTE",
        reason="It needs a block of its own, and Millstream keeps one block per stream table so far.",
        way_round="Group at the top of the query only.",
    )


_RULES: dict[type[Relation], Callable[[Relation], list[Flat]]] = {
    Scan: _scan,
    Filter: _filter,
    Project: _project,
    Join: _join,
    UnionAll: _union,
    Aggregate: _stateful,
}
