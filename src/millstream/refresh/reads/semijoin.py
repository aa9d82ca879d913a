"""Leave out rows that meet none: what is in no row of the result need not be looked up for, nor evaluated.

    lineitem -> part, of which a filter passes one in twenty:    one row of lineitem in twenty asks for its order

A row of an inner join is nothing without one of the other end's. By the time it would ask its next neighbour, the
answers of those it has asked before are at hand; theirs, likewise, have been asked by those behind them. Rows that
stand for both versions are compared with rows of both, so what is left out is in neither. Images are of the same
values as the rows that they correct, and go with them.

What is left goes to Spark with rows that are alike made one: a customer's orders, of which only the customer is asked.

Which columns are equal is Spark's word. Only where a comparison of what travelled says the same (whole numbers, texts)
is anything left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from millstream.algebra.block import Branch, Edge, Input, Leaf
from millstream.compiler.blocks.demand import Id
from millstream.refresh.reads.input_rows import InputRows, among

# So few rows are sooner looked up for than compared.
FEW = 1_000
_INTEGERS = frozenset({"int16", "int32", "int64"})


class SemiJoinReduction:
    """Compares the rows that the inputs of a branch hold so far."""

    def __init__(self, branch: Branch, held: Mapping[str, InputRows], waiting: Collection[Id]) -> None:
        self.branch = branch
        self.held = held
        self.waiting = waiting
        """The messages that have not been sent yet. It shrinks."""

    def rows(self, name: str, rows: pa.Table, *, away: str = "", number: int = 2) -> pa.Table:
        """Those of an input that meet a row of each neighbour they need, but for the one that is asked next.

        The number is that of the round: rows of this one and of those before it are there.
        """
        for edge in self.branch.edges:
            ends = edge.ends(name)
            if rows.num_rows <= FEW or ends is None or ends[0] == away or not edge.reduces(name):
                continue
            if not any((name, ends[0], one) in self.waiting for one in range(1, number + 1)):
                rows = self._meeting(rows, name, edge, number)
        return rows

    def _meeting(self, rows: pa.Table, name: str, edge: Edge, number: int) -> pa.Table:
        ends = edge.ends(name)
        assert ends is not None
        other, own, theirs = ends
        pairs = [
            (place, mine, its)
            for place, (mine, its) in enumerate(zip(own, theirs, strict=True))
            if alike(self.branch.input(name).leaf(mine), self.branch.input(other).leaf(its))
        ]
        partners = self._partners(other, name, number) if pairs else None
        if partners is None:
            return rows
        for place, mine, its in pairs:
            rows = rows.filter(among(rows[mine], partners[its], nulls=place in edge.nulls))
        return rows

    def _partners(self, name: str, asking: str, number: int) -> pa.Table | None:
        """The keys of an input's rows; None where they are not at hand."""
        tables = self.held[name].tables()
        if tables is None:
            return None
        edges = [ends for edge in self.branch.edges if (ends := edge.ends(name))]
        columns = list(dict.fromkeys(column for _, own, _ in edges for column in own))
        empty = pa.schema([(c, self.branch.input(name).leaf(c).wire.arrow_type) for c in columns]).empty_table()
        keys = pa.concat_tables([empty, *(table.select(columns) for table in tables)])
        return self.rows(name, keys, away=asking, number=number)


# From so many joined tables on, each row is sent once, not as a stored row and images that correct it: of n tables that
# have a row twice, the join has it 2^n times.
LONG_JOIN = 4


def count_duplicates(one: Input, rows: pa.Table, *, corrected: bool = False) -> pa.Table:
    """Rows that are alike as one, counted; where a key is among the columns, none are, unless images correct them."""
    columns = [leaf.name for leaf in one.leaves]
    shown = {leaf.expr.as_ref.column for leaf in one.leaves if leaf.expr.as_ref is not None}
    told_apart = bool(one.scan.table.key) and shown >= set(one.scan.table.key)
    if (rows.num_rows <= FEW or told_apart) and not corrected:
        return rows
    # Of floating-point numbers, some are equal and not the same: 0 and -0.
    keys = {name: _by_bits(rows[name]) for name in columns}
    same = pa.table({"__n": _numbers(rows), "__before": rows["__before"], "__after": rows["__after"], **keys})
    counts = same.group_by(columns).aggregate([("__n", "min"), ("__before", "sum"), ("__after", "sum")])
    counts = counts.filter(pc.or_(pc.not_equal(counts["__before_sum"], 0), pc.not_equal(counts["__after_sum"], 0)))
    values = [rows[name].take(counts["__n_min"]) for name in columns]
    return pa.table([*values, counts["__before_sum"], counts["__after_sum"]], schema=rows.schema)


def _by_bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(values.type):
        return values
    bits = pa.int64() if values.type.bit_width == 64 else pa.int32()
    return pa.chunked_array([chunk.view(bits) for chunk in values.chunks], bits)


def _numbers(rows: pa.Table) -> pa.Array:
    return pa.array(range(rows.num_rows), pa.int64())


def alike(one: Leaf, other: Leaf) -> bool:
    """Is a value of one equal to a value of the other exactly where what travelled is?"""
    wires = one.wire, other.wire
    return all(wire.arrow in _INTEGERS for wire in wires) or all(wire.spark == "string" for wire in wires)
