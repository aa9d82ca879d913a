"""Blocks whose rows are materialized: windows and limits, which PostgreSQL computes."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.algebra.block import (
    BlockColumn,
    Key,
    LimitBlock,
    Output,
    PartitionHead,
    WindowBlock,
)
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Aggregate, Call, Limit, Measure, Named, Order, Window
from millstream.algebra.text_io import output_sql
from millstream.algebra.types import Column
from millstream.compiler.blocks import aggregate_state
from millstream.compiler.blocks.branch import BranchPlan
from millstream.compiler.blocks.flatten import FlatBranch, flatten
from millstream.compiler.blocks.group_block import place_partitions, plainly
from millstream.compiler.blocks.stateless_block import UNKNOWN_TYPE, qualify_columns
from millstream.compiler.placement.placement import NUMERIC
from millstream.compiler.refusal import collect
from millstream.compiler.server.questions import PlanningServer
from millstream.errors import Unsupported


def window_block(
    window: Window, flats: Sequence[FlatBranch], server: PlanningServer
) -> WindowBlock | Unsupported:
    """Build the block of a window, or return its refusal.

    PostgreSQL computes its rows over all rows of a touched partition.
    """
    exprs = [
        *(Expr(ref.sql) for ref in window.input.columns),
        *(call.expr for call in window.calls),
    ]
    keys = tuple(Named(f"k{number}", key) for number, key in enumerate(window.keys))
    every = Expr.parse(f"ROW({', '.join(expr.sql for expr in exprs)})")
    rows = Aggregate(
        window.input, keys, (Measure("rows", Call("", None, None, every)),), window.alias
    )
    partitions = place_partitions(rows, flats, server)
    if isinstance(partitions, Unsupported):
        return partitions
    branches = collect(branch.finish() for branch in partitions.branches)
    if isinstance(branches, Unsupported):
        return branches
    first = partitions.branches[0]
    body = {
        name: BlockColumn(name, one.type or NUMERIC, one.wire) for name, one in partitions.columns
    }
    row_columns = tuple(column for name, column in body.items() if name in first.row_columns)
    texts = [flats[0].over(expr) if len(flats) == 1 else expr for expr in exprs]
    outputs = tuple(
        Output(Column(name, UNKNOWN_TYPE), f"({qualify_columns(text, first.final)})")
        for name, text in zip(window.names, texts, strict=True)
    )
    accumulators = tuple(aggregate_state.GroupState().accumulators.values())
    head = PartitionHead(tuple(body[key.name] for key in keys), accumulators, (), row_columns)
    return WindowBlock(
        "window", tuple(branches), tuple(body.values()), outputs, Key("row_id"), head=head
    )


def limit_block(limit: Limit, server: PlanningServer) -> LimitBlock | Unsupported:
    """Build the block of a limit over one table or block, or return its refusal.

    PostgreSQL reads its first rows, if possible by an index.
    """
    flat = flatten(limit.input)[0]
    wanted = [flat.outputs[ref] for ref in limit.input.columns]
    order = [Order(flat.over(one.expr), one.how) for one in limit.order]
    plan = BranchPlan(flat, 0, [*wanted, *(one.expr for one in order)], server)
    leaves = collect(
        plan.placer.leaf(plainly(expr), "carry") for expr in (*wanted, *(one.expr for one in order))
    )
    if isinstance(leaves, Unsupported):
        return leaves
    named = [(f"x{n}", placed) for n, placed in enumerate(leaves[: len(wanted)])]
    branch = plan.finish(named)
    if isinstance(branch, Unsupported):
        return branch
    # All columns break ties; a column without an order does so by its text.
    tie_breakers = [
        f"({expr.sql})"
        if placed.type and placed.type.comparable
        else output_sql(expr.sql, placed.type or NUMERIC)
        for expr, (_, placed) in zip(wanted, named, strict=True)
        if expr.refs
    ]
    # A constant orders nothing, and a number would be read as the position of a column.
    order = [one for one in order if one.expr.refs]
    sorted_by = [one.sql for one in order] + ([] if "TIES" in limit.limit else tie_breakers)
    tail = f"ORDER BY {', '.join(sorted_by)} {limit.limit}" if sorted_by else limit.limit
    outputs = tuple(
        Output(Column(f"c{n}", UNKNOWN_TYPE), f"({expr.sql})") for n, expr in enumerate(wanted)
    )
    columns = tuple(BlockColumn(name, one.type or NUMERIC, one.wire) for name, one in named)
    return LimitBlock(
        "limit", (branch,), columns, outputs, Key("row_id"), tail=tail, order=tuple(order)
    )
