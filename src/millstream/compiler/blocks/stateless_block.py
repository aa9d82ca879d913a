"""Blocks without a head: the columns that Spark carries, and PostgreSQL's final expressions over
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from millstream.algebra.block import BlockColumn, Branch, Key, Output, StatelessBlock
from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr, Ref, ref_of, transform
from millstream.algebra.table import quoted
from millstream.algebra.types import Column, PgType
from millstream.compiler.blocks import row_keys
from millstream.compiler.blocks.branch import BranchPlan
from millstream.compiler.blocks.flatten import FlatBranch
from millstream.compiler.placement.placement import NUMERIC, Placement
from millstream.compiler.refusal import collect
from millstream.compiler.server.questions import PlanningServer
from millstream.compiler.workaround import UNITE_STREAM_TABLES
from millstream.errors import Unsupported

# The type of an inner block's columns until the server has described them.
UNKNOWN_TYPE = PgType(705, "unknown", "unknown", kind="pseudo")


def build_stateless_block(
    wanted: Sequence[Ref],
    flats: Sequence[FlatBranch],
    columns: Sequence[Column],
    server: PlanningServer,
) -> StatelessBlock | Unsupported:
    """Build the block of these columns, over all branches; return the refusal of what cannot be
    placed.
    """
    if len(flats) == 1:
        return one_branch(flats[0], [flats[0].outputs[ref] for ref in wanted], columns, server)
    branches, placed, first = list[Branch](), list[list[tuple[str, Placement]]](), 0
    for flat in flats:
        found = _part(flat, first, [flat.outputs[ref] for ref in wanted], server)
        if isinstance(found, Unsupported):
            return found
        branch, named = found
        branches.append(branch)
        placed.append(named)
        first += len(branch.inputs)
    body = _columns_of(placed, columns)
    if isinstance(body, Unsupported):
        return body
    outputs = tuple(Output(c, f"d.{quoted(b.name)}") for c, b in zip(columns, body, strict=True))
    return StatelessBlock("result", tuple(branches), body, outputs, Key("row_id"))


def _part(
    flat: FlatBranch, first: int, exprs: Sequence[Expr], server: PlanningServer
) -> tuple[Branch, list[tuple[str, Placement]]] | Unsupported:
    """Build one of several branches, with the placements of its columns; or return its refusal."""
    plan = BranchPlan(flat, first, exprs, server, alone=False)
    placed = collect(plan.placer.place(expr, "carry") for expr in exprs)
    if isinstance(placed, Unsupported):
        return placed
    named = [(f"x{n}", one) for n, one in enumerate(placed)]
    branch = plan.finish(named)
    return branch if isinstance(branch, Unsupported) else (branch, named)


def one_branch(
    flat: FlatBranch,
    wanted: Sequence[Expr],
    columns: Sequence[Column],
    server: PlanningServer,
    first: int = 0,
) -> StatelessBlock | Unsupported:
    """Build the block of one branch, or return its refusal.

    PostgreSQL evaluates the final expressions over the columns that Spark carries.
    """
    plan = BranchPlan(flat, first, wanted, server)
    over = collect(plan.placer.over_columns(expr) for expr in wanted)
    if isinstance(over, Unsupported):
        return over
    body, final = dict[Expr, tuple[BlockColumn, Placement]](), dict[Ref, Expr]()
    for _, binding_refs in over:
        for ref, placed in binding_refs.items():
            column = BlockColumn(f"x{len(body)}", placed.type or NUMERIC, placed.wire)
            name = body.setdefault(placed.expr, (column, placed))[0].name
            final[ref] = Expr(f"d.{quoted(name)}")
    branch = plan.finish([(column.name, placed) for column, placed in body.values()])
    if isinstance(branch, Unsupported):
        return branch
    outputs = tuple(
        Output(c, f"({qualify_columns(expr, final)}){cast_suffix(c)}")
        for c, (expr, _) in zip(columns, over, strict=True)
    )
    key = row_keys.region_key(
        flat.region, {c.name: e for c, e in zip(columns, wanted, strict=True)}
    )
    return StatelessBlock(
        "result", (branch,), tuple(column for column, _ in body.values()), outputs, key
    )


def _columns_of(
    placed: list[list[tuple[str, Placement]]], columns: Sequence[Column]
) -> tuple[BlockColumn, ...] | Unsupported:
    """Return the columns of the body, or the refusal of a column that travels differently in two
    branches.
    """
    made = []
    for position, column in enumerate(columns):
        # Nothing is ordered here, so texts of different collations travel alike.
        wires = {replace(branch[position][1].wire, ordered=False) for branch in placed}
        if len(wires) > 1:
            return Unsupported.construct(
                f'column "{column.name}" of a UNION ALL',
                reason="Its parts have different representations in Spark.",
                way_round=UNITE_STREAM_TABLES,
            )
        name, one = placed[0][position]
        type_ = (one.type or NUMERIC) if column.type is UNKNOWN_TYPE else column.type
        made.append(BlockColumn(name, type_, wires.pop()))
    return tuple(made)


def cast_suffix(column: Column) -> str:
    """Return the cast of an output to its column's type; empty if the type is unknown yet."""
    return "" if column.type is UNKNOWN_TYPE else f"::{column.type.name}"


def qualify_columns(expr: Expr, final: Mapping[Ref, Expr]) -> str:
    """Return the text of an expression with its columns replaced by final expressions, whose texts
    stay as they are.
    """

    def replaced(node: exp.Expression) -> exp.Expression:
        found = final.get(ref_of(node)) if isinstance(node, exp.Column) else None
        return exp.Var(this=found.sql) if found else node

    return printed(transform(expr.tree, replaced))
