"""Move conditions over a table and single rows into the reads of that table.

    Region  orders AS o, block 0 AS s        Region  orders AS o
      "o"."amount" > "s"."m0"          ->      read with the temporal filter  "o"."amount" > "s"."m0"

A table of exactly one row adds no row to a join and takes none away, so nothing but its columns
matters. A condition over it and one other table is a filter of that table, before with the old row
and after with the new one: PostgreSQL evaluates both while reading. Where nothing else looks at the
single row, it is no longer joined.

The same tables are open to it as to any filter: those that have a row in each row of the region. An
equality that rows can be looked up by stays a join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.algebra.expr import Expr, is_quantified, is_record, unwrapped
from millstream.algebra.relation import Scan
from millstream.algebra.table import Clock
from millstream.algebra.temporal_filter import Bound, TemporalFilter
from millstream.algebra.types import PgType
from millstream.algebra.wire import wire_of
from millstream.compiler.blocks.flatten import FlatBranch
from millstream.compiler.blocks.region import BranchNames, OuterJoin, Region
from millstream.compiler.refusal import accepted
from millstream.compiler.server.questions import PlanningServer

# The temporal filters of a table's reads, by its alias.
Filters = Mapping[str, tuple[TemporalFilter, ...]]

_OPERATORS: dict[type[exp.Expression], str] = {
    exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.EQ: "=",
}  # fmt: skip
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "="}
# Types whose comparisons are one total order, whatever the collation.
_ORDERED = frozenset(
    [
        "int2", "int4", "int8", "numeric", "float4", "float8", "date", "timestamp", "timestamptz", "time", "timetz",
        "interval", "oid", "uuid",
    ]
)  # fmt: skip


def push_temporal_filters(
    flat: FlatBranch, wanted: Sequence[Expr], server: PlanningServer
) -> tuple[FlatBranch, Filters]:
    """Return the branch without the conditions that became temporal filters, and the filters.

    Single rows that only these conditions read are removed from the branch.
    """
    branch_names = BranchNames(flat.region)
    singles = frozenset(alias for alias, scan in branch_names.scans.items() if scan.single_row)
    if not singles:
        return flat, {}
    rule = _Rule(branch_names, singles, server)
    region = rule.region(flat.region)
    found = dict[str, tuple[TemporalFilter, ...]]()
    for alias, temporal_filters in rule.found:
        found[alias] = (*found.get(alias, ()), temporal_filters)
    looked_at = {scan.alias for _, temporal_filters in rule.found for scan in temporal_filters.by}
    used = {
        alias for one in (*wanted, *all_conditions(region)) for alias in branch_names.homes(one)
    }
    return replace(flat, region=_without(region, looked_at - used - found.keys())), found


def all_conditions(region: Region) -> Iterator[Expr]:
    """Yield the conditions of a region, and of all joins in it."""
    yield from region.conditions
    for outer in region.outers():
        yield from (*outer.on, *outer.left.conditions, *outer.right.conditions)


def joinable(one: PgType, other: PgType) -> bool:
    """True if Spark can join by an equality of these types."""
    families = ({"int2", "int4", "int8"}, {"text", "varchar"})
    same = one.base == other.base or any({one.base, other.base} <= family for family in families)
    return same and wire_of(one).equal and wire_of(other).equal


@dataclass(frozen=True)
class _Compared:
    """A comparison of two sides, with their types."""

    operator: str
    sides: tuple[Expr, Expr]
    types: tuple[PgType, PgType]


class _Rule:
    def __init__(
        self, branch_names: BranchNames, singles: frozenset[str], server: PlanningServer
    ) -> None:
        self.branch_names = branch_names
        self.singles = singles
        self.clocks = {
            alias for alias in singles if isinstance(branch_names.scans[alias].table, Clock)
        }
        self.server = server
        self.found: list[tuple[str, TemporalFilter]] = []

    def region(self, region: Region) -> Region:
        """Return a region without the conditions that become temporal filters, at any depth."""
        items = tuple(
            item if isinstance(item, Scan) else self._outer(item) for item in region.items
        )
        return Region(items, self._remaining(region.conditions, region.certain()))

    def _outer(self, outer: OuterJoin) -> OuterJoin:
        left, right = self.region(outer.left), self.region(outer.right)
        on = outer.on if outer.kind == "full" else self._remaining(outer.on, outer.right.certain())
        return replace(outer, left=left, right=right, on=on)

    def _remaining(self, conditions: Iterable[Expr], open_to: Iterable[Scan]) -> tuple[Expr, ...]:
        """Return the conditions that stay; the others are recorded as temporal filters."""
        aliases = {scan.alias for scan in open_to}
        return tuple(one for one in conditions if not self._becomes_filter(one, aliases))

    def _becomes_filter(self, condition: Expr, open_to: set[str]) -> bool:
        homes = self.branch_names.homes(condition)
        # Between single rows, the clock is the one that changes.
        own = homes - self.singles or homes - self.clocks
        by = homes & self.singles - own
        if len(own) != 1 or not by or not homes <= open_to:
            return False
        condition = self.branch_names.expanded(condition)
        compared = self._compared(condition)
        if compared is not None and self._is_lookup(compared):
            return False
        alias, scans = next(iter(own)), tuple(self.branch_names.scans[one] for one in sorted(by))
        bound = self._bound(compared, alias) if compared is not None else None
        self.found.append((alias, TemporalFilter(condition, scans, bound)))
        return True

    def _compared(self, condition: Expr) -> _Compared | None:
        node = unwrapped(condition.tree)
        operator = _OPERATORS.get(type(node))
        if (
            operator is None
            or is_quantified(node)
            or is_record(node.this)
            or is_record(node.expression)
        ):
            return None
        one, other = (Expr.of(unwrapped(side)) for side in (node.this, node.expression))
        types = accepted(self.server.types([one, other], list(self.branch_names.scans.values())))
        return _Compared(operator, (one, other), (types[0], types[1]))

    def _is_lookup(self, compared: _Compared) -> bool:
        """True if a comparison is an equality of two tables by which rows can be looked up."""
        homes = [self.branch_names.homes(side) for side in compared.sides]
        apart = all(len(home) == 1 for home in homes) and homes[0] != homes[1]
        return compared.operator == "=" and apart and joinable(*compared.types)

    def _bound(self, compared: _Compared, alias: str) -> Bound | None:
        if any(type_.kind != "base" or type_.base not in _ORDERED for type_ in compared.types):
            return None
        one, other = compared.sides
        homes = self.branch_names.homes(one), self.branch_names.homes(other)
        if homes[0] == {alias} and alias not in homes[1]:
            return Bound(one, compared.operator, other)
        if homes[1] == {alias} and alias not in homes[0]:
            return Bound(other, _MIRRORED[compared.operator], one)
        return None


def _without(region: Region, aliases: set[str]) -> Region:
    """Return a region without these tables; a region of nothing else stays as it is."""
    items = list[Scan | OuterJoin]()
    for item in region.items:
        if isinstance(item, OuterJoin):
            left, right = _without(item.left, aliases), _without(item.right, aliases)
            items.append(replace(item, left=left, right=right))
        elif item.alias not in aliases:
            items.append(item)
    return replace(region, items=tuple(items)) if items else region
