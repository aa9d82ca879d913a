"""Regions: the joins of a branch, with inner joins flattened and the others nested as the query
nests them.

    Region      join items in any order, and the conditions of their inner joins; an item is a table or an OuterJoin
    OuterJoin   a left, full or mark join of one region to another

        orders AS o JOIN customers AS c ON c.id = o.customer LEFT JOIN regions AS r ON r.id =
        c.region

        Region   OuterJoin  left, on r.id = c.region
                   left     Region  o, c:  c.id = o.customer
                   right    Region  r

Below an outer join a column may be an expression, coalesce(x, 0) AS y. Above it, y is NULL in rows
without a match; substituting the expression would make it 0 there. So above the join y stays a
column, a NullExtendedColumn.

    law      in rows without a match every column of the null-extended side is NULL, whatever its expression: a
             constant too, although it names no table and could be computed anywhere
    home     the tables whose rows a column is computed from. A null-extended column has the homes of its expression; a
             constant, a table that has a row in each row of its side
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
    """Join items and the conditions of their inner joins."""

    items: tuple[Scan | OuterJoin, ...]
    conditions: tuple[Expr, ...] = ()

    def scans(self) -> Iterator[Scan]:
        """Yield the tables at any depth, in order."""
        for item in self.items:
            if isinstance(item, Scan):
                yield item
            else:
                yield from item.left.scans()
                yield from item.right.scans()

    def outers(self) -> Iterator[OuterJoin]:
        """Yield the joins that are not inner, at any depth, each before those inside it."""
        for item in self.items:
            if isinstance(item, OuterJoin):
                yield item
                yield from item.left.outers()
                yield from item.right.outers()

    def certain(self) -> Iterator[Scan]:
        """Yield the tables that have a row in each row of the region; a full join has no such
        table.
        """
        for item in self.items:
            if isinstance(item, Scan):
                yield item
            elif item.kind != "full":
                yield from item.left.certain()


@dataclass(frozen=True)
class NullExtendedColumn:
    """A column of a null-extended side that is computed by an expression over that side."""

    ref: Ref
    expr: Expr
    side: Literal["left", "right"]


@dataclass(frozen=True)
class OuterJoin:
    """A left, full or mark join of one region to another."""

    kind: OuterKind
    left: Region
    right: Region
    on: tuple[Expr, ...]
    null_extended_columns: tuple[NullExtendedColumn, ...] = ()
    mark: Ref | None = None

    def side(self, column: NullExtendedColumn) -> Region:
        """Return the side that a null-extended column belongs to."""
        return self.left if column.side == "left" else self.right

    def definitions(self) -> dict[Ref, Expr]:
        """Return the expression of each null-extended column."""
        return {column.ref: column.expr for column in self.null_extended_columns}

    def null_extended_sides(self) -> tuple[Region, ...]:
        """Return the sides whose columns are NULL in rows without a match."""
        return {"left": (self.right,), "full": (self.right, self.left), "mark": ()}[self.kind]


class BranchNames:
    """The tables, marks and null-extended columns that the expressions of a branch name."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.scans = {scan.alias: scan for scan in region.scans()}
        self.marks = {outer.mark for outer in region.outers() if outer.mark is not None}
        self._homes = {alias: scan.alias for scan in region.scans() for alias in scan.aliases}
        self._definitions: dict[Ref, Expr] = {}
        self._outers: dict[Ref, OuterJoin] = {}
        self._sides: dict[Ref, Region] = {}
        for outer in region.outers():
            for column in outer.null_extended_columns:
                self._definitions[column.ref] = column.expr
                self._outers[column.ref] = outer
                self._sides[column.ref] = outer.side(column)
        self._paths = {alias: tuple(self._path(alias)) for alias in self.scans}

    def _path(self, alias: str) -> Iterator[tuple[OuterJoin, Region]]:
        for outer in self.region.outers():
            for side in outer.null_extended_sides():
                if any(scan.alias == alias for scan in side.scans()):
                    yield outer, side

    def null_extending_joins(
        self, alias: str, around: Sequence[OuterJoin] = ()
    ) -> list[tuple[OuterJoin, Region]]:
        """Return the joins that may null-extend a table, outermost first, each with the side that
        has the table.

        Seen from inside the joins `around`, their rows are not extended yet: these are left out.
        """
        return [(outer, side) for outer, side in self._paths[alias] if outer not in around]

    def expanded(self, expression: Expr) -> Expr:
        """Return an expression over columns of tables alone, true of rows in which each outer join
        has a match.
        """
        while known := {
            ref: self._definitions[ref] for ref in expression.refs if ref in self._definitions
        }:
            expression = expression.substitute(known)
        return expression

    def is_null_extended_column(self, ref: Ref) -> bool:
        """True if a column is computed below an outer join that may null-extend it."""
        return ref in self._definitions

    def definition(self, column: Ref) -> Expr:
        """Return the expression of a null-extended column."""
        return self._definitions[column]

    def outer_join(self, column: Ref) -> OuterJoin:
        """Return the join that null-extends a column."""
        return self._outers[column]

    def side(self, column: Ref) -> Region:
        """Return the side of its join that a null-extended column belongs to."""
        return self._sides[column]

    def homes(self, expression: Expr) -> frozenset[str]:
        """Return the aliases of the tables and marks that an expression is computed from."""
        return frozenset(home for ref in expression.refs for home in self._homes_of(ref))

    def _homes_of(self, ref: Ref) -> frozenset[str]:
        if ref not in self._definitions:
            return frozenset({self._homes.get(ref.alias, ref.alias)})
        return self.homes(self._definitions[ref]) or _anchors(self._sides[ref])

    def first_certain(self) -> Scan | None:
        """Return a table that has a row in each row of the branch; None if no table has."""
        return next(self.region.certain(), None)


def _anchors(region: Region) -> frozenset[str]:
    """Return tables of which at least one has a row in each row of a region: one, or one per side
    of a full join.
    """
    certain = next(region.certain(), None)
    if certain is not None:
        return frozenset({certain.alias})
    full = next(item for item in region.items if isinstance(item, OuterJoin))
    return _anchors(full.left) | _anchors(full.right)
