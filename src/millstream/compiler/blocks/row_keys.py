"""Find what tells the rows of a stream table apart.

Of a join: the keys of its tables, less those that the other tables' rows determine. An order has
one customer, so orders joined with customers by the customers' key are told apart by the orders'
key alone.

    closure(kept) = kept, and every table all of whose key columns equal columns of the closure
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.block import Key
from millstream.algebra.expr import Expr, Ref, equated, unwrapped
from millstream.algebra.relation import Scan
from millstream.algebra.types import Column
from millstream.compiler.blocks.region import OuterJoin, Region

# PostgreSQL's own limit: an index has no more columns than this.
WIDEST_INDEX = 32

# Pairs of columns, of different tables, that are equal in every row.
Pairs = list[tuple[Ref, Ref]]


def region_key(region: Region, outputs: dict[str, Expr]) -> Key:
    """The smallest derived key that stands in the output, or a row id."""
    scans, pairs = tuple(region.certain()), _pairs(region)
    if any(not _told_apart(scan) for scan in scans) or not _determines(region, pairs):
        return Key("row_id")
    kept = _minimal(scans, pairs)
    names, nullable = list[str](), False
    for scan in kept:
        for column in scan.table.key:
            name = _shown(Ref(scan.alias, column), pairs, outputs)
            if name is None:
                return Key("row_id")
            found = scan.table.column(column)
            names, nullable = [*names, name], nullable or found is None or not found.not_null
    return _key(names, nullable=nullable) if names else Key("row_id")


def _told_apart(scan: Scan) -> bool:
    """Are its rows told apart by its key? Those that a function makes of one row are not."""
    return not scan.expansions and (bool(scan.table.key) or scan.table.single)


def _pairs(region: Region) -> Pairs:
    """Columns that the conditions of a region, and of what it keeps whole, make equal."""
    found = Pairs()
    for condition in region.conditions:
        found += _equal(condition)
    for item in region.items:
        if isinstance(item, OuterJoin) and item.kind != "full":
            found += _pairs(item.left)
    return [*found, *((b, a) for a, b in found), *_groups_met(region.conditions, region)]


def _equal(condition: Expr) -> Pairs:
    return _columns(condition) if isinstance(unwrapped(condition.tree), exp.EQ) else []


def _groups_met(conditions: tuple[Expr, ...], region: Region) -> Pairs:
    """Equalities by which NULLs are equal: among groups there is one of NULL, in a table there may be many."""
    kept = {scan.alias for scan in region.scans() if scan.table.block is not None}
    found = [pair for one in conditions if not _equal(one) for pair in _columns(one)]
    return [pair for one, other in found for pair in ((one, other), (other, one)) if pair[0].alias in kept]


def _columns(condition: Expr) -> Pairs:
    """The columns of two tables that an equality names."""
    sides = equated(condition)
    one, other = (sides[0].as_ref, sides[1].as_ref) if sides else (None, None)
    return [(one, other)] if one and other and one.alias != other.alias else []


def _determines(region: Region, pairs: Pairs) -> bool:
    """Does each row of the certain tables stand in one row of the region at most?"""
    return _each_meets_one(region, list(region.certain()), pairs)


def _each_meets_one(region: Region, scans: list[Scan], pairs: Pairs) -> bool:
    """Do the joins of a region that are not inner leave one row of each of these tables' rows, at any depth?"""
    outers = [item for item in region.items if isinstance(item, OuterJoin)]
    return all(_each_meets_one(one.left, scans, pairs) and _meets_one(scans, one, pairs) for one in outers)


def _meets_one(scans: list[Scan], outer: OuterJoin, pairs: Pairs) -> bool:
    if outer.kind != "left":
        return outer.kind == "mark"
    inside = [pair for condition in outer.on for pair in _equal(condition)] + _pairs(outer.right)
    every = [*pairs, *inside, *((b, a) for a, b in inside), *_groups_met(outer.on, outer.right)]
    right = list(outer.right.certain())
    known = _closure(scans, (*scans, *right), every)
    return all(scan.alias in known for scan in right) and _each_meets_one(outer.right, [*scans, *right], every)


def group_key(shown: dict[str, str], keys: tuple[Column, ...]) -> Key:
    """The group's columns, if all stand in the output; `shown` maps key name -> output name."""
    if not keys:
        return Key("single")
    if any(key.name not in shown for key in keys):
        return Key("row_id")
    return _key([shown[key.name] for key in keys], nullable=any(not key.not_null for key in keys))


def _key(names: list[str], *, nullable: bool) -> Key:
    distinct = tuple(dict.fromkeys(names))
    return Key("columns", distinct, nullable) if len(distinct) <= WIDEST_INDEX else Key("row_id")


def _minimal(scans: tuple[Scan, ...], pairs: Pairs) -> list[Scan]:
    kept = list(scans)
    for scan in reversed(scans):
        without = [other for other in kept if other is not scan]
        if without and _closure(without, scans, pairs) == {s.alias for s in scans}:
            kept = without
    return kept


def _closure(kept: list[Scan], scans: tuple[Scan, ...], pairs: Pairs) -> set[str]:
    known = {scan.alias for scan in kept}
    grown = True
    while grown:
        grown = False
        for scan in scans:
            if scan.alias not in known and _determined(scan, known, pairs):
                known.add(scan.alias)
                grown = True
    return known


def _determined(scan: Scan, known: set[str], pairs: Pairs) -> bool:
    equal_to_known = {one.column for one, other in pairs if one.alias == scan.alias and other.alias in known}
    return _told_apart(scan) and (scan.table.single or set(scan.table.key) <= equal_to_known)


def _shown(ref: Ref, pairs: Pairs, outputs: dict[str, Expr]) -> str | None:
    """The output column that is this column, or one equal to it."""
    same = {ref} | {other for one, other in pairs if one == ref}
    return next((name for name, expr in outputs.items() if expr.as_ref in same), None)
