"""Evaluate a block on Spark: over its changes, over everything, or over certain groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from millstream.algebra.block import AggregateHead, Block, Branch, Input, LimitBlock, PairsBlock
from millstream.algebra.table import BlockRows
from millstream.compiler.blocks.demand import group_seed
from millstream.compiler.lowering import LoweringOptions, lower
from millstream.frontier.snapshot import Snapshot
from millstream.observe.failpoint import failpoint
from millstream.refresh.reads import pairs
from millstream.refresh.reads.access_paths import AccessPaths
from millstream.refresh.reads.demand import read_demanded, rows_of
from millstream.refresh.reads.input_rows import InputRows
from millstream.refresh.reads.read_sql import schema_of
from millstream.refresh.report import Tally
from millstream.spark.engine import Engine, Evaluated, NoNumber, Rows, few, view_name
from millstream.spark.inline import inline
from millstream.spark.parts import Result
from millstream.spark.scan import Scanned


@dataclass
class Evaluation:
    """Runs one block at one cut."""

    block: Block
    engine: Callable[[], Engine]
    """Starts Spark when it is first called; it is not called if nothing has changed."""
    access: AccessPaths
    tally: Tally

    def changes(self, frontier: Snapshot) -> Result | None:
        """Evaluate how the changes since the frontier change the block; return None if there are
        none.
        """
        views = dict[str, Rows]()
        with self.tally.phase("changes"):
            images = {one.name: self._images(one, frontier) for one in self.block.inputs()}
            crossing = {
                one.name: rows
                for one in self.block.inputs()
                if (rows := self.access.crossing(one)) is not None
            }
        failpoint("changes_read")
        if not any(
            isinstance(rows, Scanned) or rows.num_rows
            for rows in (*images.values(), *crossing.values())
        ):
            return None
        if self._read_in_place:
            return Result.of(_NOTHING)
        if isinstance(self.block, PairsBlock):
            with self.tally.phase("demand"):
                return pairs.changed_pairs(self.block, images, self.access)
        for branch in self.block.branches:
            own = {one.name: images[one.name] for one in branch.inputs}
            with self.tally.phase("demand"):
                views |= self._views(
                    branch, read_demanded(branch, own, self.access, before=1, crossing=crossing)
                )
        failpoint("demand_read")
        return self._run(views, changes=True)

    def _images(self, one: Input, frontier: Snapshot) -> pa.Table:
        """Return the changed rows of an input.

        When a recursion begins, its own rows have not changed.
        """
        table = one.scan.table
        if isinstance(table, BlockRows) and table.block == self.block.position:
            return schema_of(one).empty_table()
        return self.access.changes(one, frontier)

    def step(self, name: str, rows: pa.Table) -> Result:
        """Evaluate a recursive term over rows of the recursion (input `name`), with other inputs as
        they are now.
        """
        branch = self.block.branches[0]
        with self.tally.phase("demand"):
            held = read_demanded(branch, {name: rows}, self.access, before=0)
        return self._run(self._views(branch, {**held, name: InputRows(first=rows)}))

    def derivations(self, keys: pa.Table) -> Result:
        """Evaluate the rows of a term with these values in columns of its body; all rows if there
        are no columns.
        """
        branch = self.block.branches[0]
        with self.tally.phase("demand"):
            views = self._views(branch, self._rows_of_groups(branch, keys))
        return self._run(views)

    def everything(self, *, group_rows: bool = False) -> Result:
        """Evaluate the block over all rows of all inputs."""
        if self._read_in_place:
            return Result.of(_NOTHING)
        if isinstance(self.block, PairsBlock):
            with self.tally.phase("demand"):
                return pairs.all_pairs(self.block, self.access)
        with self.tally.phase("demand"):
            views = {one.name: self.access.everything(one, before=0) for one in self.block.inputs()}
        failpoint("demand_read")
        return self._run(views, group_rows=group_rows)

    def groups(self, head: AggregateHead, keys: pa.Table, *, group_rows: bool = False) -> Result:
        """Evaluate certain groups over all of their rows, or return those rows; `keys` has the
        head's key columns.
        """
        if not head.keys:
            return self.everything(group_rows=group_rows)
        views = dict[str, Rows]()
        with self.tally.phase("demand"):
            for branch in self.block.branches:
                views |= self._views(branch, self._rows_of_groups(branch, keys))
        return self._run(views, keys, group_rows=group_rows)

    @property
    def _read_in_place(self) -> bool:
        """True if PostgreSQL computes the block when it is applied, and Spark is not used."""
        return isinstance(self.block, LimitBlock)

    def _rows_of_groups(self, branch: Branch, keys: pa.Table) -> dict[str, InputRows]:
        """Look up the rows of groups in one input, and from there the rows of the others that they
        join.
        """
        seed = group_seed(branch, keys.column_names)
        if seed is None:
            return {
                one.name: InputRows(whole=self.access.everything(one, before=0))
                for one in branch.inputs
            }
        name, pairs = seed
        one = branch.input(name)
        wanted = keys.select([key for key, _ in pairs])
        wanted = wanted.group_by(wanted.column_names).aggregate([])
        found = self.access.lookup(
            one, [leaf for _, leaf in pairs], wanted, before=0, nulls=range(len(pairs))
        )
        if isinstance(found, Scanned):
            rest = [other for other in branch.inputs if other.name != name]
            whole = {
                other.name: InputRows(whole=self.access.everything(other, before=0))
                for other in rest
            }
            return {name: InputRows(whole=found), **whole}
        held = read_demanded(branch, {name: found}, self.access, before=0)
        return {**held, name: held[name].as_stored()}

    def _views(self, branch: Branch, input_rows: dict[str, InputRows]) -> dict[str, Rows]:
        return {
            one.name: rows_of(one, input_rows[one.name], self.engine, joined=len(branch.inputs))
            for one in branch.inputs
        }

    def _run(
        self,
        views: dict[str, Rows],
        keys: pa.Table | None = None,
        *,
        group_rows: bool = False,
        changes: bool = False,
    ) -> Result:
        tables = views if keys is None else {**views, "wanted": keys}
        # Few rows are written into the statement; the others become views of Spark.
        items = {
            name: text
            for name, rows in tables.items()
            if isinstance(rows, pa.Table) and (text := inline(rows))
        }
        named = {name: view_name(name) for name in tables if name not in items}
        inputs, items = {named[name]: tables[name] for name in named}, {**items, **named}
        options = LoweringOptions(
            items.get("wanted"), group_rows, few=few(inputs), nested=True, changes=changes
        )

        def statement(exact: bool) -> str:
            return lower(self.block, items, replace(options, exact=exact))

        with self.tally.phase("spark"):
            # With many rows the result comes in parts, and another statement cannot be run after
            # the first part.
            exact = not few(inputs) or self._has_large_numbers(views)
            done = self._evaluated(statement, inputs, exact=exact)
        self.tally.spark_jobs += done.jobs
        self.access.settle()
        failpoint("spark_done")
        return done.rows

    def _evaluated(
        self, statement: Callable[[bool], str], views: dict[str, Rows], *, exact: bool
    ) -> Evaluated:
        """Run the small statement; the exact one if numbers do not fit Spark's decimals, as read or
        as computed.
        """
        if exact:
            return self.engine().evaluate(statement(True), views)
        try:
            return self.engine().evaluate(statement(False), views)
        except NoNumber:
            # A sum has more digits than its operands. That is known only when it is computed.
            return self.engine().evaluate(statement(True), views)

    def _has_large_numbers(self, views: dict[str, Rows]) -> bool:
        """True if a numeric was read that Spark has no number for."""
        beside = [
            (one.name, leaf.name)
            for one in self.block.inputs()
            for leaf in one.leaves
            if leaf.use == "untried"
        ]
        return any(_has_values(views[name], column) for name, column in beside if name in views)


def _has_values(rows: Rows, column: str) -> bool:
    return isinstance(rows, Scanned) or rows[column].null_count < rows.num_rows


# Not by way of an array: making one imports pandas, which takes longer than all else that a command
# imports.
_NOTHING = pa.Table.from_batches([], pa.schema([("__net", pa.int64())]))
