"""Flatten nested selects into branches: regions of joined tables, and outputs over them.

A filter or projection over a subquery is written into it; a join over UNION ALL is distributed
over its parts. What is left of any query without a stateful operator is a list of branches,

    Branch:  FROM region  SELECT o1, o2, ...

whose rows together are the query's rows, duplicates kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from millstream.algebra.expr import Expr, Ref, conjuncts
from millstream.algebra.relation import Expand, Expansion, Filter, Join, Project, Relation, Scan, UnionAll
from millstream.algebra.types import PgType
from millstream.compiler.blocks.region import NullExtendedColumn, OuterJoin, OuterKind, Region
from millstream.errors import Unsupported


@dataclass(frozen=True)
class FlatBranch:
    """One branch: what is joined, and what each output column is in its terms."""

    region: Region
    outputs: Mapping[Ref, Expr]
    lenient: bool = False
    """Spark may compute with numbers that may have too many digits for it: one that does is an error of the refresh."""

    def over(self, expression: Expr) -> Expr:
        """An expression over the outputs, in terms of the region."""
        return expression.substitute(self.outputs)


def flatten(relation: Relation) -> list[FlatBranch]:
    """The branches of a relation that has no stateful operator in it."""
    return _RULES[type(relation)](relation)


def _scan(node: Relation) -> list[FlatBranch]:
    assert isinstance(node, Scan)
    return [FlatBranch(Region((node,)), {ref: Expr(ref.sql) for ref in node.columns})]


def _filter(node: Relation) -> list[FlatBranch]:
    assert isinstance(node, Filter)
    return [
        FlatBranch(_filtered(flat.region, tuple(conjuncts(flat.over(node.predicate)))), flat.outputs)
        for flat in flatten(node.input)
    ]


def _filtered(region: Region, conditions: tuple[Expr, ...]) -> Region:
    return Region(region.items, region.conditions + conditions)


def _expand(node: Relation) -> list[FlatBranch]:
    """A function over one table is called while reading it; of a constant, while reading any."""
    assert isinstance(node, Expand)
    return [_expanded(node, flat) for flat in flatten(node.input)]


def _expanded(node: Expand, flat: FlatBranch) -> FlatBranch:
    expansion = node.expansion.substitute(flat.outputs)
    home = expandable(flat, expansion)
    if home is None:
        raise Unsupported.construct(
            f"the function {expansion.call} over several tables, or over the optional side of a join",
            reason="It is called while one table is read.",
            way_round="Call it in a subquery over that table.",
        )
    grown = replace(home, expansions=(*home.expansions, expansion))
    items = tuple(grown if item is home else item for item in flat.region.items)
    old = dict(zip(node.columns, node.input.columns, strict=False))
    outputs = {new: flat.outputs[ref] for new, ref in old.items()}
    made = zip(node.made, node.expansion.columns, strict=True)
    outputs |= {Ref(node.alias, new): Expr.ref(node.expansion.alias, name) for new, name in made}
    return FlatBranch(Region(items, flat.region.conditions), outputs)


def expandable(flat: FlatBranch, expansion: Expansion) -> Scan | None:
    """The table over which a function can be called; None where there is none."""
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
    return FlatBranch(Region(one.items + other.items, one.conditions + other.conditions + own), outputs)


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
    return FlatBranch(Region((outer,)), {**inside, **{column.ref: Expr(column.ref.sql) for column in computed}})


def _computed_columns(flat: FlatBranch, side: Literal["left", "right"]) -> list[NullExtendedColumn]:
    """Return the outputs of one side that are more than a column of a table."""
    return [NullExtendedColumn(ref, expr, side) for ref, expr in flat.outputs.items() if expr.as_ref is None]


def _check_parts(node: Join, lefts: list[FlatBranch], rights: list[FlatBranch]) -> None:
    """A union on the side that is asked whether there is anything cannot be taken apart."""
    if len(rights) > 1 or (node.kind == "full" and len(lefts) > 1):
        raise Unsupported.construct(
            "a UNION ALL on the optional side of a join, or in EXISTS or IN",
            reason="Whether a row meets anything cannot be told part by part.",
            way_round="Use UNION, or group the parts.",
        )


def _union(node: Relation) -> list[FlatBranch]:
    assert isinstance(node, UnionAll)
    return [
        FlatBranch(flat.region, _renamed(node, part.columns, flat.outputs))
        for part in node.parts
        for flat in flatten(part)
    ]


def _renamed(node: UnionAll, columns: tuple[Ref, ...], outputs: Mapping[Ref, Expr]) -> dict[Ref, Expr]:
    """The part's columns under the union's names, cast to the union's types."""
    return {new: _cast(outputs[old], type_) for new, old, type_ in zip(node.columns, columns, node.types, strict=True)}


def _cast(expression: Expr, type_: PgType) -> Expr:
    return Expr.parse(f"CAST({expression.sql} AS {type_.name})")


_RULES: dict[type[Relation], Callable[[Relation], list[FlatBranch]]] = {
    Scan: _scan,
    Expand: _expand,
    Filter: _filter,
    Project: _project,
    Join: _join,
    UnionAll: _union,
}
