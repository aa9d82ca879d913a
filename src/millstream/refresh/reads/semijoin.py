"""Semi-join reduction: drop rows that cannot join before any lookup and before Spark.

    lineitem -> part, with a filter that 1 part in 20 passes:    1 row of lineitem in 20 looks up its order

    1   lineitem sends its keys to part, and part answers with the rows that pass the filter
    2   lineitem drops its rows whose part is not in the answer
    3   lineitem sends the keys of the others to orders

A row of an inner join reaches the result only with a match at the other end. So before an input
sends keys to its next neighbour, its rows are compared with those of each neighbour that has
answered; the neighbour's rows have been compared with those of its own other neighbours before
that.

This is exact for both versions of the result, before and after the refresh. The rows compared with
are those of both versions, so a dropped row has a match in neither. An image (counts -1, 0 or 1, 0)
has the same values as the stored row that it corrects (counts 1, 1), so both are dropped or
neither.

Spark decides which rows join. So rows are dropped only by columns for which equality in Arrow is
the same as in Spark: integers and texts (`compares_exactly`).

`count_duplicates` then merges the rows of an input that are equal in all columns into one row with
the sums of their counts, for Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from millstream.algebra.block import Branch, Edge, Input, Leaf
from millstream.compiler.blocks.demand import Id
from millstream.refresh.reads.input_rows import InputRows, is_in

# Looking up this many rows costs less than comparing them first.
FEW = 1_000
_INTEGERS = frozenset({"int16", "int32", "int64"})


class SemiJoinReduction:
    """Drops rows of a branch by comparing them with the rows that the other inputs hold so far."""

    def __init__(
        self, branch: Branch, held: Mapping[str, InputRows], waiting: Collection[Id]
    ) -> None:
        self.branch = branch
        self.held = held
        self.waiting = waiting
        """The messages that have not been sent yet; the caller removes each one that it sends."""

    def rows(self, name: str, rows: pa.Table, *, receiver: str = "", round_: int = 2) -> pa.Table:
        """Return the rows of an input that have a match in each neighbour that must have one and
        has answered.

        `receiver` is the neighbour that gets the keys next, and is not compared with: its rows are
        not known yet. `round_` is the current round: a neighbour has answered if no message to it
        of this or an earlier round waits.
        """
        for edge in self.branch.edges:
            ends = edge.ends(name)
            if (
                rows.num_rows <= FEW
                or ends is None
                or ends[0] == receiver
                or not edge.reduces(name)
            ):
                continue
            answered = not any(
                (name, ends[0], earlier) in self.waiting for earlier in range(1, round_ + 1)
            )
            if answered:
                rows = self._with_match(rows, name, edge, round_)
        return rows

    def _with_match(self, rows: pa.Table, name: str, edge: Edge, round_: int) -> pa.Table:
        """Return the rows that have a match at the other end of an edge, by each comparable column
        on its own.
        """
        ends = edge.ends(name)
        assert ends is not None
        other, own_columns, other_columns = ends
        pairs = [
            (position, own, theirs)
            for position, (own, theirs) in enumerate(zip(own_columns, other_columns, strict=True))
            if compares_exactly(
                self.branch.input(name).leaf(own), self.branch.input(other).leaf(theirs)
            )
        ]
        partners = self._partners(other, name, round_) if pairs else None
        if partners is None:
            return rows
        for position, own, theirs in pairs:
            rows = rows.filter(is_in(rows[own], partners[theirs], nulls=position in edge.nulls))
        return rows

    def _partners(self, name: str, compared: str, round_: int) -> pa.Table | None:
        """Return the key columns of the rows of `name`, a neighbour of `compared`; None if the
        driver lacks them.

        They are reduced first by the other neighbours of `name`.
        """
        tables = self.held[name].tables()
        if tables is None:
            return None
        edges = [ends for edge in self.branch.edges if (ends := edge.ends(name))]
        columns = list(dict.fromkeys(column for _, own, _ in edges for column in own))
        empty = pa.schema(
            [(c, self.branch.input(name).leaf(c).wire.arrow_type) for c in columns]
        ).empty_table()
        keys = pa.concat_tables([empty, *(table.select(columns) for table in tables)])
        return self.rows(name, keys, receiver=compared, round_=round_)


# A stored row and the image that corrects it are two rows. A join of n tables with two rows each
# has 2^n rows, so from this many tables on they are merged into one.
LONG_JOIN = 4


def count_duplicates(input_: Input, rows: pa.Table, *, corrected: bool = False) -> pa.Table:
    """Return equal rows as one row with summed counts; drop rows whose counts cancel.

    Few rows, and rows with a key among their columns, are returned as they are. With `corrected`
    they are not: images correct stored rows, also of a table with a key.
    """
    columns = [leaf.name for leaf in input_.leaves]
    columns_read = {
        leaf.expr.as_ref.column for leaf in input_.leaves if leaf.expr.as_ref is not None
    }
    unique = bool(input_.scan.table.key) and columns_read >= set(input_.scan.table.key)
    if (rows.num_rows <= FEW or unique) and not corrected:
        return rows
    # Grouped by bits: the floating-point numbers 0 and -0 are equal, and print differently.
    keys = {name: _by_bits(rows[name]) for name in columns}
    same = pa.table(
        {"__n": _numbers(rows), "__before": rows["__before"], "__after": rows["__after"], **keys}
    )
    counts = same.group_by(columns).aggregate(
        [("__n", "min"), ("__before", "sum"), ("__after", "sum")]
    )
    counts = counts.filter(
        pc.or_(pc.not_equal(counts["__before_sum"], 0), pc.not_equal(counts["__after_sum"], 0))
    )
    values = [rows[name].take(counts["__n_min"]) for name in columns]
    return pa.table([*values, counts["__before_sum"], counts["__after_sum"]], schema=rows.schema)


def _by_bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floating-point numbers as integers of the same bits, and other values unchanged."""
    if not pa.types.is_floating(values.type):
        return values
    bits = pa.int64() if values.type.bit_width == 64 else pa.int32()
    return pa.chunked_array([chunk.view(bits) for chunk in values.chunks], bits)


def _numbers(rows: pa.Table) -> pa.Array:
    return pa.array(range(rows.num_rows), pa.int64())


def compares_exactly(left: Leaf, right: Leaf) -> bool:
    """Return True if values of two leaf columns are equal exactly if their transmitted forms are."""
    wires = left.wire, right.wire
    return all(wire.arrow in _INTEGERS for wire in wires) or all(
        wire.spark == "string" for wire in wires
    )
