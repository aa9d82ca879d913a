"""Lower a block to one Spark SQL statement, one rule per operator.

The same statement serves a differential refresh, a full one and the recomputing of groups: only
the multiplicities of the rows in its views differ.
"""

from __future__ import annotations

from millstream.algebra.block import Block, Match, Read
from millstream.algebra.relation import Filter, Project, Relation
from millstream.compiler.lowering.aggregate import aggregate
from millstream.compiler.lowering.consolidate import consolidate_select
from millstream.compiler.lowering.context import Lowering, Rule
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
    """The statement of a block, for people; of a recursion, those of its terms."""
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
) -> str:
    """The statement that evaluates a block over its inputs' views; `wanted` names a view of group keys.

    With `members`, the rows of the groups are not aggregated: PostgreSQL will do that. `few` rows are kept together.
    `nested` is for Spark, all else for people.
    """
    ctx = Lowering(RULES, views, few)
    step = union_all([ctx.lower(branch.body) for branch in block.branches], ctx)
    if block.head is None:
        return ctx.finish(consolidate_select(step, block.columns), nested=nested)
    if wanted is not None:
        step = restrict(step, block.head, wanted, ctx)
    if members:
        return ctx.finish(consolidate_select(step, (*block.head.keys, *block.head.row_columns)), nested=nested)
    return ctx.finish(aggregate(step, block.head, block.columns, ctx), nested=nested)
