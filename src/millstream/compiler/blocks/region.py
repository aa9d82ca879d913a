"""Regions: what a branch joins, with inner joins flattened and the others kept as they nest.

    Region   members that are joined by conditions, in any order: tables, and joins that are not inner
    Outer    a left, full or mark join of one region to another

Below an outer join a column may stand for an expression, coalesce(x, 0) AS y, and above it y is NULL where nothing
was met: writing the expression in its place would make it 0. So such a column is *sealed*: above, it stays a name.

    law      every column of a null-extended side is NULL in the rows where that side has no match, whatever it stands
             for: a constant too, which names no table and could be computed anywhere
    home     so each sealed column belongs to tables of its side: those of its expression; of a constant, one that has a
             row in each row of the side, beside which it is read

    atoms    what expressions of a branch are made of: columns of tables, sealed columns, marks
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Scan

OuterKind = Literal["left", "full", "mark"]


@dataclass(frozen=True)
class Region:
    """Members joined by conditions."""

    items: tuple[Scan | OuterJoin, ...]
    conditions: tuple[Expr, ...] = ()

    def scans(self) -> Iterator[Scan]:
        """Its tables at any depth, in order."""
        for item in self.items:
            if isinstance(item, Scan):
                yield item
            else:
                yield from item.left.scans()
                yield from item.right.scans()

    def outers(self) -> Iterator[OuterJoin]:
        """Its joins that are not inner, at any depth, each before those inside it."""
        for item in self.items:
            if isinstance(item, OuterJoin):
                yield item
                yield from item.left.outers()
                yield from item.right.outers()

    def certain(self) -> Iterator[Scan]:
        """The tables that have a row in each of its rows; in a full join none has, for sure."""
        for item in self.items:
            if isinstance(item, Scan):
                yield item
            elif item.kind != "full":
                yield from item.left.certain()


@dataclass(frozen=True)
class NullExtendedColumn:
    """A column of a null-extended side that stands for an expression over that side."""

    ref: Ref
    expr: Expr
    side: Literal["left", "right"]


@dataclass(frozen=True)
class OuterJoin:
    """A join that is not inner."""

    kind: OuterKind
    left: Region
    right: Region
    on: tuple[Expr, ...]
    sealed: tuple[NullExtendedColumn, ...] = ()
    mark: Ref | None = None

    def side(self, sealed: NullExtendedColumn) -> Region:
        """The side that a sealed column is of."""
        return self.left if sealed.side == "left" else self.right

    def definitions(self) -> dict[Ref, Expr]:
        """What each sealed column stands for."""
        return {one.ref: one.expr for one in self.sealed}

    def null_extended(self) -> tuple[Region, ...]:
        """The sides whose columns are NULL in some of its rows."""
        return {"left": (self.right,), "full": (self.right, self.left), "mark": ()}[self.kind]


class BranchNames:
    """What the names in a branch's expressions stand for."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.scans = {scan.alias: scan for scan in region.scans()}
        self._homes = {alias: scan.alias for scan in region.scans() for alias in scan.aliases}
        self.marks = {outer.mark for outer in region.outers() if outer.mark is not None}
        self.sealed = {one.ref: (one.expr, outer) for outer in region.outers() for one in outer.sealed}
        self._sides = {one.ref: outer.side(one) for outer in region.outers() for one in outer.sealed}
        self._paths = {alias: tuple(self._path(alias)) for alias in self.scans}

    def _path(self, alias: str) -> Iterator[tuple[OuterJoin, Region]]:
        for outer in self.region.outers():
            for side in outer.null_extended():
                if any(scan.alias == alias for scan in side.scans()):
                    yield outer, side

    def padding(self, alias: str, around: Sequence[OuterJoin] = ()) -> list[tuple[OuterJoin, Region]]:
        """The joins, outermost first, that may leave this table's columns NULL; not those we stand inside of."""
        return [(outer, side) for outer, side in self._paths[alias] if outer not in around]

    def expanded(self, expression: Expr) -> Expr:
        """The same over columns of tables alone, as if every row met one."""
        while known := {ref: self.sealed[ref][0] for ref in expression.refs if ref in self.sealed}:
            expression = expression.substitute(known)
        return expression

    def unsealed(self, expression: Expr, outer: OuterJoin) -> Expr:
        """The same as it is written inside an outer join."""
        return expression.substitute(outer.definitions())

    def side(self, sealed: Ref) -> Region:
        """The null-extended side that a sealed column is of."""
        return self._sides[sealed]

    def homes(self, expression: Expr) -> frozenset[str]:
        """The tables and marks that it is over; a column without any is of a table that its side always has."""
        return frozenset(home for ref in expression.refs for home in self._homes_of(ref))

    def _homes_of(self, ref: Ref) -> frozenset[str]:
        if ref not in self.sealed:
            return frozenset({self._homes.get(ref.alias, ref.alias)})
        return self.homes(self.sealed[ref][0]) or _anchors(self._sides[ref])

    def home(self, alias: str) -> Scan | None:
        """The table whose rows have columns of this alias."""
        return self.scans.get(self._homes.get(alias, ""))

    def first_certain(self) -> Scan | None:
        """A table that has a row in each row of the branch."""
        return next(self.region.certain(), None)


def _anchors(region: Region) -> frozenset[str]:
    """Tables of which one at least has a row in each row of a region: one alone, or one of each side of a full join."""
    certain = next(region.certain(), None)
    if certain is not None:
        return frozenset({certain.alias})
    full = next(item for item in region.items if isinstance(item, OuterJoin))
    return _anchors(full.left) | _anchors(full.right)
