"""Find what tells the rows of a stream table apart.

Of a join: the keys of its tables, less those that the other tables' rows determine. An order has
one customer, so orders joined with customers by the customers' key are told apart by the orders'
key alone.

    closure(kept) = kept, and every table all of whose key columns equal columns of the closure
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Scan
from millstream.algebra.types import Column
from millstream.plan.block import Key

# PostgreSQL's own limit: an index has no more columns than this.
WIDEST_INDEX = 32

# Pairs of columns, of different tables, that are equal in every row.
Equalities = Iterable[tuple[Ref, Ref]]


def key_of_join(scans: tuple[Scan, ...], equalities: Equalities, outputs: dict[str, Expr]) -> Key:
    """The smallest derived key that stands in the output, or a row id."""
    pairs = [*equalities, *((b, a) for a, b in equalities)]
    if any(not scan.table.key for scan in scans):
        return Key("row_id")
    kept = _minimal(scans, pairs)
    names = []
    for scan in kept:
        for column in scan.table.key:
            name = _shown(Ref(scan.alias, column), pairs, outputs)
            if name is None:
                return Key("row_id")
            names.append(name)
    return _key(names, nullable=False)


def key_of_groups(shown: dict[str, str], keys: tuple[Column, ...]) -> Key:
    """The group's columns, if all stand in the output; `shown` maps key name -> output name."""
    if not keys:
        return Key("single")
    if any(key.name not in shown for key in keys):
        return Key("row_id")
    return _key([shown[key.name] for key in keys], nullable=any(not key.not_null for key in keys))


def _key(names: list[str], *, nullable: bool) -> Key:
    distinct = tuple(dict.fromkeys(names))
    return Key("columns", distinct, nullable) if len(distinct) <= WIDEST_INDEX else Key("row_id")


def _minimal(scans: tuple[Scan, ...], pairs: list[tuple[Ref, Ref]]) -> list[Scan]:
    kept = list(scans)
    for scan in reversed(scans):
        without = [other for other in kept if other is not scan]
        if without and _closure(without, scans, pairs) == {s.alias for s in scans}:
            kept = without
    return kept


def _closure(kept: list[Scan], scans: tuple[Scan, ...], pairs: list[tuple[Ref, Ref]]) -> set[str]:
    known = {scan.alias for scan in kept}
    grown = True
    while grown:
        grown = False
        for scan in scans:
            if scan.alias not in known and _determined(scan, known, pairs):
                known.add(scan.alias)
                grown = True
    return known


def _determined(scan: Scan, known: set[str], pairs: list[tuple[Ref, Ref]]) -> bool:
    equal_to_known = {one.column for one, other in pairs if one.alias == scan.alias and other.alias in known}
    return set(scan.table.key) <= equal_to_known


def _shown(ref: Ref, pairs: list[tuple[Ref, Ref]], outputs: dict[str, Expr]) -> str | None:
    """The output column that is this column, or one equal to it."""
    same = {ref} | {other for one, other in pairs if one == ref}
    return next((name for name, expr in outputs.items() if expr.as_ref in same), None)
