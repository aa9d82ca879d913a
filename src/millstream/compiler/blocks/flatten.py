"""Flatten nested selects into branches: regions of joined tables, and outputs over them.

A filter or projection over a subquery is substituted into it; a join over UNION ALL is distributed
over its parts. Any query without a stateful operator becomes a list of branches,

    Branch:  FROM region  SELECT o1, o2, ...

whose rows together are the rows of the query, with duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from millstream.algebra.expr import Expr, Ref, conjuncts
from millstream.algebra.relation import (
    Expand,
    Expansion,
    Filter,
    Join,
    Project,
    Relation,
    Scan,
    UnionAll,
)
from millstream.algebra.types import PgType
from millstream.compiler.blocks.region import NullExtendedColumn, OuterJoin, OuterKind, Region
from millstream.errors import Unsupported


@dataclass(frozen=True)
class FlatBranch:
    """One branch: a region, and each output column as an expression over it."""

    region: Region
    outputs: Mapping[Ref, Expr]
    lenient: bool = False
    """Allow Spark arithmetic on unbounded numerics; a value beyond decimal(38) fails the refresh.

    Conditions, and the columns of a union, may raise for rows that a join discards.
    """

    def over(self, expression: Expr) -> Expr:
        """Return an expression over the outputs as one over the region."""
        return expression.substitute(self.outputs)


def flatten(relation: Relation) -> list[FlatBranch]:
    """Return the branches of a relation without stateful operators."""
    return _RULES[type(relation)](relation)


def _scan(node: Relation) -> list[FlatBranch]:
    assert isinstance(node, Scan)
    return [FlatBranch(Region((node,)), {ref: Expr(ref.sql) for ref in node.columns})]


def _filter(node: Relation) -> list[FlatBranch]:
    assert isinstance(node, Filter)
    return [
        FlatBranch(
            _filtered(flat.region, tuple(conjuncts(flat.over(node.predicate)))), flat.outputs
        )
        for flat in flatten(node.input)
    ]


def _filtered(region: Region, conditions: tuple[Expr, ...]) -> Region:
    return Region(region.items, region.conditions + conditions)


def _expand(node: Relation) -> list[FlatBranch]:
    """Add a function to the scan of the table it is over; if its arguments are constants, to the
    first scan.
    """
    assert isinstance(node, Expand)
    return [_expanded(node, flat) for flat in flatten(node.input)]


def _expanded(node: Expand, flat: FlatBranch) -> FlatBranch:
    expansion = node.expansion.substitute(flat.outputs)
    home = find_scan_for(flat, expansion)
    if home is None:
        raise Unsupported.construct(
            f"the function {expansion.call} over several tables, or over the optional side of a join",
            reason="Millstream calls such a function while it reads the rows of one table.",
            way_round="Call it in a subquery over that table.",
            node=expansion.call,
        )
    grown = replace(home, expansions=(*home.expansions, expansion))
    items = tuple(grown if item is home else item for item in flat.region.items)
    old = dict(zip(node.columns, node.input.columns, strict=False))
    outputs = {new: flat.outputs[ref] for new, ref in old.items()}
    made = zip(node.made, node.expansion.columns, strict=True)
    outputs |= {Ref(node.alias, new): Expr.ref(node.expansion.alias, name) for new, name in made}
    return FlatBranch(Region(items, flat.region.conditions), outputs)


def find_scan_for(flat: FlatBranch, expansion: Expansion) -> Scan | None:
    """Return the scan that has all arguments of a function; None if there is none."""
    scans = [item for item in flat.region.items if isinstance(item, Scan)]
    return next((scan for scan in scans if expansion.aliases <= set(scan.aliases)), None)


def _project(node: Relation) -> list[FlatBranch]:
    assert isinstance(node, Project)
    return [
        FlatBranch(flat.region, {Ref(node.alias, o.name): flat.over(o.expr) for o in node.outputs})
        for flat in flatten(node.input)
    ]


def _join(node: Relation) -> list[FlatBranch]:
    assert isinstance(node, Join)
    lefts, rights = flatten(node.left), flatten(node.right)
    if node.kind == "inner":
        return [_pair(node, left, right) for left, right in product(lefts, rights)]
    _check_parts(node, lefts, rights)
    return [_outer(node, node.kind, left, rights[0]) for left in lefts]


def _pair(node: Join, left: FlatBranch, right: FlatBranch) -> FlatBranch:
    outputs = {**left.outputs, **right.outputs}
    own = tuple(conjuncts(node.condition.substitute(outputs))) if node.condition else ()
    one, other = left.region, right.region
    return FlatBranch(
        Region(one.items + other.items, one.conditions + other.conditions + own), outputs
    )


def _outer(node: Join, kind: OuterKind, left: FlatBranch, right: FlatBranch) -> FlatBranch:
    inside = {**left.outputs, **right.outputs}
    on = tuple(conjuncts(node.condition.substitute(inside))) if node.condition else ()
    if kind == "mark":
        assert node.mark is not None
        outer = OuterJoin(kind, left.region, right.region, on, mark=node.mark)
        return FlatBranch(Region((outer,)), {**left.outputs, node.mark: Expr(node.mark.sql)})
    computed = _computed_columns(right, "right")
    if kind == "full":
        computed += _computed_columns(left, "left")
    outer = OuterJoin(kind, left.region, right.region, on, tuple(computed))
    return FlatBranch(
        Region((outer,)), {**inside, **{column.ref: Expr(column.ref.sql) for column in computed}}
    )


def _computed_columns(flat: FlatBranch, side: Literal["left", "right"]) -> list[NullExtendedColumn]:
    """Return the outputs of one side that are more than a column of a table."""
    return [
        NullExtendedColumn(ref, expr, side)
        for ref, expr in flat.outputs.items()
        if expr.as_ref is None
    ]


def _check_parts(node: Join, lefts: list[FlatBranch], rights: list[FlatBranch]) -> None:
    """Raise Unsupported if an optional side is a union: whether a row has a match depends on all
    its parts.
    """
    if len(rights) > 1 or (node.kind == "full" and len(lefts) > 1):
        raise Unsupported.construct(
            "a UNION ALL on the optional side of a join, or in EXISTS or IN",
            reason="Whether a row has a match cannot be decided for each part alone.",
            way_round="Use UNION, or GROUP BY over the UNION ALL.",
        )


def _union(node: Relation) -> list[FlatBranch]:
    assert isinstance(node, UnionAll)
    return [
        FlatBranch(flat.region, _union_outputs(node, part.columns, flat.outputs))
        for part in node.parts
        for flat in flatten(part)
    ]


def _union_outputs(
    node: UnionAll, columns: tuple[Ref, ...], outputs: Mapping[Ref, Expr]
) -> dict[Ref, Expr]:
    """Return the columns of a part under the union's names, cast to the union's types."""
    return {
        new: _cast(outputs[old], type_)
        for new, old, type_ in zip(node.columns, columns, node.types, strict=True)
    }


def _cast(expression: Expr, type_: PgType) -> Expr:
    return Expr.parse(f"CAST({expression.sql} AS {type_.name})", expression)


_RULES: dict[type[Relation], Callable[[Relation], list[FlatBranch]]] = {
    Scan: _scan,
    Expand: _expand,
    Filter: _filter,
    Project: _project,
    Join: _join,
    UnionAll: _union,
}
