"""Derive the key of a stream table's rows.

The key of a join consists of the keys of its tables, less the tables whose rows the others
determine. An order has one customer, so orders joined with customers by the key of customers have
the key of orders.

    closure(kept) = kept, and every table all of whose key columns equal columns of the closure
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.block import Key
from millstream.algebra.expr import Expr, Ref, equated, unwrapped
from millstream.algebra.relation import Scan
from millstream.algebra.table import BlockRows
from millstream.algebra.types import Column
from millstream.compiler.blocks.region import OuterJoin, Region

# PostgreSQL's own limit: an index has no more columns than this.
WIDEST_INDEX = 32

# Pairs of columns, of different tables, that are equal in every row.
Pairs = list[tuple[Ref, Ref]]


def region_key(region: Region, outputs: dict[str, Expr]) -> Key:
    """Return the smallest derived key whose columns are outputs, or a row id."""
    scans, pairs = tuple(region.certain()), _pairs(region)
    if any(not _has_key(scan) for scan in scans) or not _determines(region, pairs):
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


def _has_key(scan: Scan) -> bool:
    """True if a key identifies each row of a scan.

    It does not identify the rows of a set-returning function.
    """
    return scan.single_row or (bool(scan.table.key) and not scan.expansions)


def _pairs(region: Region) -> Pairs:
    """Return columns that are equal in each row of a region: by its conditions, and those of
    preserved sides.
    """
    found = Pairs()
    for condition in region.conditions:
        found += _equal(condition)
    for item in region.items:
        if isinstance(item, OuterJoin) and item.kind != "full":
            found += _pairs(item.left)
    return [*found, *((b, a) for a, b in found), *_equal_to_groups(region.conditions, region)]


def _equal(condition: Expr) -> Pairs:
    return _columns(condition) if isinstance(unwrapped(condition.tree), exp.EQ) else []


def _equal_to_groups(conditions: tuple[Expr, ...], region: Region) -> Pairs:
    """Return equalities of NULL keys with groups: of groups one has the key NULL, in a table many
    rows may have it.
    """
    kept = {scan.alias for scan in region.scans() if isinstance(scan.table, BlockRows)}
    found = [pair for one in conditions if not _equal(one) for pair in _columns(one)]
    return [
        pair
        for one, other in found
        for pair in ((one, other), (other, one))
        if pair[0].alias in kept
    ]


def _columns(condition: Expr) -> Pairs:
    """Return the columns of two tables that an equality compares."""
    sides = equated(condition)
    one, other = (sides[0].as_ref, sides[1].as_ref) if sides else (None, None)
    return [(one, other)] if one and other and one.alias != other.alias else []


def _determines(region: Region, pairs: Pairs) -> bool:
    """True if each row of the certain tables is in at most one row of the region."""
    return _never_duplicates(region, list(region.certain()), pairs)


def _never_duplicates(region: Region, scans: list[Scan], pairs: Pairs) -> bool:
    """True if no outer or mark join in the region can duplicate a row of these tables."""
    outers = [item for item in region.items if isinstance(item, OuterJoin)]
    return all(
        _never_duplicates(one.left, scans, pairs) and _has_one_match(scans, one, pairs)
        for one in outers
    )


def _has_one_match(scans: list[Scan], outer: OuterJoin, pairs: Pairs) -> bool:
    if outer.kind != "left":
        return outer.kind == "mark"
    inside = [pair for condition in outer.on for pair in _equal(condition)] + _pairs(outer.right)
    every = [
        *pairs,
        *inside,
        *((b, a) for a, b in inside),
        *_equal_to_groups(outer.on, outer.right),
    ]
    right = list(outer.right.certain())
    known = _closure(scans, (*scans, *right), every)
    return all(scan.alias in known for scan in right) and _never_duplicates(
        outer.right, [*scans, *right], every
    )


def group_key(shown: dict[str, str], keys: tuple[Column, ...]) -> Key:
    """Return the keys of the groups, if all are outputs; `shown` maps key name -> output name."""
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
    equal_to_known = {
        one.column for one, other in pairs if one.alias == scan.alias and other.alias in known
    }
    return _has_key(scan) and (scan.table.single or set(scan.table.key) <= equal_to_known)


def _shown(ref: Ref, pairs: Pairs, outputs: dict[str, Expr]) -> str | None:
    """Return the output that is this column or one equal to it; None if there is none."""
    same = {ref} | {other for one, other in pairs if one == ref}
    return next((name for name, expr in outputs.items() if expr.as_ref in same), None)
