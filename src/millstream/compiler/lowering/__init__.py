"""Lower a block to one Spark SQL statement, one rule per operator.

One statement serves a differential refresh, a full refresh and the recomputation of groups: only the multiplicities of
the rows in its views differ.
"""

from __future__ import annotations

from millstream.algebra.block import Block, Match, Read
from millstream.algebra.relation import Filter, Project, Relation
from millstream.compiler.lowering.aggregate import aggregate
from millstream.compiler.lowering.consolidate import consolidate_select
from millstream.compiler.lowering.context import Lowering, Rule, may_raise
from millstream.compiler.lowering.filter import filter_rows
from millstream.compiler.lowering.match import match
from millstream.compiler.lowering.project import project
from millstream.compiler.lowering.read import read
from millstream.compiler.lowering.restrict import restrict
from millstream.compiler.lowering.union_all import union_all
from millstream.large_stack import on_large_stack

RULES: dict[type[Relation], Rule] = {Read: read, Filter: filter_rows, Project: project, Match: match}


@on_large_stack
def printed(block: Block, views: dict[str, str]) -> str:
    """Return the statement of a block as `explain` shows it; for a recursion, one statement per term."""
    if not block.terms:
        return lower(block, views)
    return "\n\n".join(f"-- {term.block.name}\n{lower(term.block, views)}" for term in block.terms)


@on_large_stack
def lower(
    block: Block,
    views: dict[str, str],
    *,
    wanted: str | None = None,
    members: bool = False,
    few: bool = False,
    nested: bool = False,
    changes: bool = False,
) -> str:
    """Return the statement that evaluates a block over the views of its inputs.

    wanted    a view of group keys: only these groups are evaluated
    members   return the rows of the groups instead of aggregating them; PostgreSQL aggregates them
    few       there are few rows: tell Spark to hold them in one partition
    nested    write steps in place, as Spark plans them fastest; otherwise by name, as people read them
    changes   the views hold images of changes: where Spark may raise an error, consolidate them before they are joined
    """
    raising = any(map(_may_raise, (branch.body for branch in block.branches)))
    ctx = Lowering(RULES, views, few, consolidated=changes and raising)
    step = union_all([ctx.lower(branch.body) for branch in block.branches], ctx)
    if block.head is None:
        return ctx.finish(consolidate_select(step, block.columns), nested=nested)
    if wanted is not None:
        step = restrict(step, block.head, wanted, ctx)
    if members:
        return ctx.finish(consolidate_select(step, (*block.head.keys, *block.head.row_columns)), nested=nested)
    return ctx.finish(aggregate(step, block.head, block.columns, ctx), nested=nested)


def _may_raise(body: Relation) -> bool:
    """True if Spark may raise an error for a row of a join."""
    if isinstance(body, Match):
        return any(map(may_raise, body.residual)) or _may_raise(body.left) or _may_raise(body.right)
    if isinstance(body, Filter):
        return may_raise(body.predicate) or _may_raise(body.input)
    return isinstance(body, Project) and (any(may_raise(one.expr) for one in body.outputs) or _may_raise(body.input))
