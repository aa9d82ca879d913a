"""The block of a recursion: the branches of its terms, each with final expressions of its own.

    base    what it begins with; reads other tables and blocks
    step    reads the recursion itself, once, and joins it to others: linear in the rows of the recursion

All branches have the same columns. Each is evaluated on its own: Spark joins, and PostgreSQL
computes the columns and the conditions that Spark cannot evaluate (`e.child <> ALL (r.path)`). So
paths may be arrays and texts.

UNION ALL stores with each row the number of steps that derive it, its level; changes are propagated
level by level (see docs/decisions/0020). UNION stores each row once; its step also carries the row
of the recursion that a row is derived from, so that a lost derivation and a new one do not cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from millstream.algebra.block import LEVEL, Block, Key, Output, RecursionBlock, RecursionTerm
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Project, Recursion, Relation, Scan, replace_scans
from millstream.algebra.table import BlockRows, SelfReference, Table, quoted
from millstream.algebra.types import Column
from millstream.algebra.wire import is_rewritten, wire_of
from millstream.compiler.blocks.branch import BranchPlan
from millstream.compiler.blocks.flatten import FlatBranch, flatten
from millstream.compiler.blocks.region import Region
from millstream.compiler.blocks.stateless_block import UNKNOWN_TYPE, cast_suffix, one_branch
from millstream.compiler.placement.placement import BOOL, INT4
from millstream.compiler.refusal import accepted
from millstream.compiler.server.questions import PlanningServer
from millstream.errors import Unsupported


def open_recursion(relation: Relation) -> Unsupported | None:
    """Return the refusal of a stateful operator that reads a recursion around it, whose rows are
    not complete yet.
    """
    own = relation.depth if isinstance(relation, Recursion) else None
    open_tables = [table for table in _self_references(relation) if table.depth != own]
    if not open_tables:
        return None
    return Unsupported.construct(
        "DISTINCT, GROUP BY, a window function, LIMIT or another operation on several rows of the recursive "
        "table, in its own term",
        reason="PostgreSQL applies it to the rows of each step alone, so the result depends on the steps taken.",
        way_round="Apply it to the result of the recursion.",
        node=open_tables[0],
    )


def _self_references(relation: Relation) -> Iterator[SelfReference]:
    """Yield the recursions that a relation reads from their own terms."""
    for one in relation.walk():
        if isinstance(one, Scan) and isinstance(one.table, SelfReference):
            yield one.table


def recursion_shape(recursion: Recursion) -> RecursionBlock:
    """Return the block without its terms: enough for the server to describe its columns."""
    names = [ref.column for ref in recursion.columns]
    outputs = [Output(Column(name, UNKNOWN_TYPE), f"q.{quoted(name)}") for name in names]
    if not recursion.each_once:
        outputs.append(Output(Column(LEVEL, INT4), "0"))
    return RecursionBlock(
        "recursion",
        (),
        (),
        tuple(outputs),
        Key("row_id"),
        each_once=recursion.each_once,
        text=recursion.text,
    )


def without_level(table: BlockRows) -> BlockRows:
    """Return the rows of a recursion as other blocks read them."""
    return replace(table, columns=tuple(column for column in table.columns if column.name != LEVEL))


def build_recursion_block(
    recursion: Recursion, block: RecursionBlock, table: Table, server: PlanningServer
) -> RecursionBlock:
    """Add the terms to the block of a recursion; `table` has the columns of its rows."""
    if recursion.each_once:
        _check_equality(table.columns, recursion.base)
    own = [one for one in _self_references(recursion.step) if one.depth == recursion.depth]
    step = replace_scans(
        recursion.step,
        lambda scan: replace(scan, table=table) if isinstance(scan.table, SelfReference) else scan,
    )
    terms = list[RecursionTerm]()
    for relation in (recursion.base, step):
        for flat in flatten(relation):
            first = sum(len(term.block.branches[0].inputs) for term in terms)
            itself = own[0] if relation is step else None
            made = _Branch(flat, table, recursion.each_once, itself).term(
                relation.columns, server, first
            )
            terms.append(replace(made, block=replace(made.block, position=block.position)))
    branches = tuple(branch for term in terms for branch in term.block.branches)
    return replace(block, branches=branches, terms=tuple(terms))


def _check_equality(columns: Sequence[Column], base: Relation) -> None:
    outputs = base.outputs if isinstance(base, Project) else ()
    for number, column in enumerate(columns):
        if not wire_of(column.type).equal or column.type.keeps_blanks or is_rewritten(column.type):
            raise Unsupported.construct(
                f"a recursive UNION of {column.type}",
                reason="The form in which its values are stored does not show whether two of them are equal.",
                way_round="Use UNION ALL, or cast the column to text.",
                node=outputs[number].expr if number < len(outputs) else None,
            )


class _Branch:
    """One branch of a term."""

    def __init__(
        self, flat: FlatBranch, table: Table, each_once: bool, itself: SelfReference | None
    ) -> None:
        """`itself` is the recursion as its step reads it; None in a branch of the base."""
        self.flat = flat
        self.table = table
        self.each_once = each_once
        self.itself = self._own(flat.region, itself) if itself else None

    def _own(self, region: Region, itself: SelfReference) -> Scan:
        """Return the scan of the recursion; raise Unsupported if the branch does not read it
        exactly once.
        """
        found = [scan for scan in region.scans() if scan.table is self.table]
        if len(found) != 1 or found[0] not in region.certain():
            raise Unsupported.construct(
                "a recursive term that reads the recursive table more than once, or not in each of its parts",
                reason="PostgreSQL applies such a term to the rows of each step alone.",
                way_round="Read it once; move the parts that do not read it to the non-recursive term.",
                node=itself,
            )
        return found[0]

    def term(self, columns: Sequence[Ref], server: PlanningServer, first: int) -> RecursionTerm:
        """Build the term: its columns, PostgreSQL's filters, and the columns of the recursion that
        it derives from.
        """
        shown = [self.flat.outputs[ref] for ref in columns]
        if not self.each_once:
            shown.append(
                Expr.parse(f"{Ref(self.itself.alias, LEVEL).sql} + 1") if self.itself else Expr("0")
            )
        own = [column for column in self.table.columns if self.each_once or column.name != LEVEL]
        typed = own if self.each_once else [*own, Column(LEVEL, INT4)]
        region = self.flat.region
        plan = BranchPlan(self.flat, first, shown, server)
        unplaceable = [
            condition for condition in plan.flat.region.conditions if not plan.placeable(condition)
        ]
        placeable = tuple(
            condition for condition in region.conditions if condition not in unplaceable
        )
        support = self._support()
        every = [*typed, *(Column(f"w{n}", BOOL) for n in range(len(unplaceable)))]
        every += [Column(f"s{n}", UNKNOWN_TYPE) for n in range(len(support))]
        flat = FlatBranch(Region(region.items, placeable), {})
        block = accepted(one_branch(flat, [*shown, *unplaceable, *support], every, server, first))
        if unplaceable and any(not edge.pairs for edge in block.branches[0].edges):
            raise _all_pairs(unplaceable[0])
        filters = block.outputs[len(typed) : len(typed) + len(unplaceable)]
        having = " AND ".join(output.expr for output in filters) or None
        name = "step" if self.itself else "base"
        block = replace(
            block, name=name, outputs=block.outputs[: len(typed)], having=having, key=Key("row_id")
        )
        return RecursionTerm(block, self._input(block), _found_by(block) if self.each_once else ())

    def _support(self) -> list[Expr]:
        """Return all columns of the recursion: they identify the row that another is derived from."""
        if self.itself is None or not self.each_once:
            return []
        return [Expr.ref(self.itself.alias, column.name) for column in self.table.columns]

    def _input(self, block: Block) -> str | None:
        alias = self.itself.alias if self.itself else None
        return next((one.name for one in block.inputs() if one.scan.alias == alias), None)


def _all_pairs(condition: Expr) -> Unsupported:
    return Unsupported.construct(
        f"the condition {condition} in a recursive query",
        reason="Spark cannot evaluate it, and no equality joins its tables: all pairs of rows would be compared.",
        way_round="Join the tables by an equality.",
        node=condition,
    )


def _found_by(block: Block) -> tuple[tuple[str, str], ...]:
    """Return the outputs that are leaves of the same type, each with its column of the body."""
    branch = block.branches[0]
    leaves = {Ref(one.name, leaf.name): leaf for one in branch.inputs for leaf in one.leaves}
    types = {name: leaves[ref].type.name for name, ref in branch.sources if ref is not None}
    found = []
    for output in block.outputs:
        same = (
            name
            for name in types
            if output.expr == f"(d.{quoted(name)}){cast_suffix(output.column)}"
        )
        name = next(same, None)
        if name is not None and types.pop(name) == output.column.type.name:
            found.append((output.column.name, name))
    return tuple(found)
