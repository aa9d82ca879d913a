"""Lower a block to one Spark SQL statement, one rule per operator.

One statement serves a differential refresh, a full refresh and the recomputation of groups: only
the multiplicities of the rows in its views differ.

    context                              the statement under construction: each rule adds named steps
    read, filter, project, union_all     rules of one input
    match                                joins, by kind: inner_join, left_join, full_join, mark_join
    matching, null_extended              what joins share: pairs, counts of matches, rows without a match
    consolidate, aggregate               the last SELECT: the changed rows, or the change of each group's state
    restrict                             only some groups, to recompute them
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.algebra.block import Block, GroupedBlock, Match, Read, RecursionBlock
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

RULES: dict[type[Relation], Rule] = {
    Read: read,
    Filter: filter_rows,
    Project: project,
    Match: match,
}


@on_large_stack
def printed(block: Block, views: dict[str, str]) -> str:
    """Return the statement of a block as `explain` shows it; for a recursion, one statement per
    term.
    """
    if not isinstance(block, RecursionBlock):
        return lower(block, views)
    return "\n\n".join(f"-- {term.block.name}\n{lower(term.block, views)}" for term in block.terms)


@dataclass(frozen=True)
class LoweringOptions:
    """What a statement is to return, and how it is written."""

    wanted: str | None = None
    """A view of group keys: only these groups are evaluated."""
    group_rows: bool = False
    """Return the rows of the groups instead of aggregating them: PostgreSQL aggregates them."""
    few: bool = False
    """There are few rows: tell Spark to hold them in one partition."""
    nested: bool = False
    """Write steps in place, as Spark plans them fastest; otherwise by name, as people read them."""
    changes: bool = False
    """The views hold images of changes: where Spark may raise an error, consolidate them before
    they are joined.
    """
    exact: bool = True
    """Compare numbers of any size; otherwise the statement is smaller, and raises `NO_NUMBER` for
    some of them.
    """


READABLE = LoweringOptions()


@on_large_stack
def lower(block: Block, views: dict[str, str], options: LoweringOptions = READABLE) -> str:
    """Return the statement that evaluates a block over the views of its inputs."""
    raising = any(_may_raise(branch.body) for branch in block.branches)
    ctx = Lowering(RULES, views, options.few, options.exact, options.changes and raising)
    step = union_all([ctx.lower(branch.body) for branch in block.branches], ctx)
    return ctx.finish(_last_select(block, step, options, ctx), nested=options.nested)


def _last_select(block: Block, step: str, options: LoweringOptions, ctx: Lowering) -> str:
    """Return the SELECT of the changed rows of a block, of its groups' changes, or of the rows of
    its groups.
    """
    if not isinstance(block, GroupedBlock):
        return consolidate_select(step, block.columns)
    head = block.head
    if options.wanted is not None:
        step = restrict(step, head, options.wanted, ctx)
    if options.group_rows:
        return consolidate_select(step, (*head.keys, *head.row_columns))
    return aggregate(step, head, block.columns, ctx)


def _may_raise(body: Relation) -> bool:
    """True if Spark may raise an error for a row of a join."""
    match body:
        case Match():
            expressions = [*body.residual]
        case Filter():
            expressions = [body.predicate]
        case Project():
            expressions = [output.expr for output in body.outputs]
        case _:
            return False
    return any(map(may_raise, expressions)) or any(map(_may_raise, body.inputs))
