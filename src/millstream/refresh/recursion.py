"""Refresh the rows of a recursion, step by step.

    run 0     each term over the changes of its other inputs, with the recursion as it is stored
    run n     each recursive term over the rows of the last step, with all other inputs as they are now

UNION ALL works by levels. The level of a row is the number of steps that produced it, and the
change of a level follows from the changes and from the change of the level before:

    change of level n = (change of the term) over level n-1 as it was + the term over the change of
    level n-1

UNION deletes and rederives: delete rows that lost a derivation, and all rows derived from them;
insert again those that the remaining rows derive; then insert new rows, and what follows from them.

    root -> a -> b,  and the edge root -> a is replaced by b -> a
    a lost a derivation, so a and b are deleted; the remaining rows do not derive them, although b now leads to a
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from psycopg import sql

from millstream.algebra.block import RecursionBlock, RecursionTerm
from millstream.errors import RecursionTooDeep, TargetDiffers
from millstream.frontier.snapshot import Snapshot
from millstream.observe.failpoint import failpoint
from millstream.postgres.copy import fetch
from millstream.refresh.evaluate import Evaluation
from millstream.refresh.reads.access_paths import AccessPaths
from millstream.refresh.staging_tables import StagingTables
from millstream.spark.parts import Result
from millstream.store import recursion, staging, state
from millstream.store.names import BlockNames


class RecursionRefresh:
    """One recursion at one cut."""

    def __init__(
        self,
        block: RecursionBlock,
        names: BlockNames,
        evaluations: Sequence[Evaluation],
        access: AccessPaths,
        most_steps: int,
    ) -> None:
        self.conn = access.cut.conn
        self.block = block
        self.names = names
        self.terms = list(zip(block.terms, evaluations, strict=True))
        self.access = access
        self.staged = StagingTables(self.conn)
        self.most_steps = most_steps
        self.runs = 0
        self.each_once = block.each_once

    def difference(self, frontier: Snapshot) -> None:
        """Apply the changes since the frontier, if there are any."""
        self._begin()
        if not self._changes(frontier):
            return
        if self.each_once:
            self._deleted(frontier)
            self._found([0])
        else:
            self._levels()
        self._carry_out(full=False)

    def whole(self) -> None:
        """Compute the recursion in full, and apply the difference from the stored rows."""
        self._begin()
        for number, (term, evaluation) in enumerate(self.terms):
            if term.itself is None:
                self._stage(number, evaluation.everything(), 0)
        if self.each_once:
            self._found([0], full=True)
        else:
            self._levels()
        self._carry_out(full=True)

    # -- UNION ALL -------------------------------------------------------------------------

    def _levels(self) -> None:
        """Compute each level in turn, as long as one changes, or the changes themselves affect a
        later one.
        """
        waiting = {
            level for (level,) in self.conn.execute(recursion.levels_sql(self.block, self.names))
        }
        while waiting:
            level = min(waiting)
            waiting.remove(level)
            found = self._run(recursion.level_sql(self.block, self.names, level))
            self.staged.analyze(self.names.steps, found)
            if found and self._step(self.names.steps, level, level + 1):
                waiting.add(level + 1)

    # -- UNION -----------------------------------------------------------------------------

    def _deleted(self, frontier: Snapshot) -> None:
        """Take out what lost a derivation and what followed from it; find what of it is derived
        from what is left.
        """
        if not self._overdelete():
            return
        self._run(recursion.take_out_sql(self.names))
        # The changes are evaluated again, because some results came from rows that are now deleted.
        self._run(*recursion.forget_sql(self.block, self.names))
        self._changes(frontier, again=True)
        self._rederive()

    def _overdelete(self) -> bool:
        number, found = 0, self._run(recursion.lost_sql(self.block, self.names))
        some = found > 0
        while found:
            self.staged.analyze(self.names.gone, found)
            run = self._next_run()
            if not self._step(self.names.gone, number, run):
                break
            number += 1
            found = self._run(recursion.lost_with_sql(self.block, self.names, run, number))
        return some

    def _rederive(self) -> None:
        run = self._next_run()
        for number, (term, evaluation) in enumerate(self.terms):
            self._stage(number, evaluation.derivations(self._keys(term)), run)
        self._run(recursion.rederived_sql(self.block, self.names, run))

    def _found(self, runs: list[int], *, full: bool = False) -> None:
        """Add what was derived and is not there yet, then what follows from that."""
        number = 0
        while True:
            self._run(recursion.found_sql(self.block, self.names, runs, number, full=full))
            run = self._next_run()
            if not self._step(self.names.steps, number, run):
                return
            number, runs = number + 1, [run]

    def _keys(self, term: RecursionTerm) -> pa.Table:
        """Return the values by which derivations of the deleted rows are looked up."""
        wires = {column.name: column.wire for column in term.block.columns}
        schema = pa.schema([(body, wires[body].arrow_type) for _, body in term.found_by])
        with self.access.tally.phase("apply"):
            query = recursion.keys_sql(term, self.names)
            return fetch(self.conn, query, schema.append(pa.field("__one", pa.int32()))).select(
                schema.names
            )

    # -- both ------------------------------------------------------------------------------

    def _begin(self) -> None:
        staging.clear(self.conn, self.names.staging(len(self.block.terms)))
        self._run(state.changes_table_sql(self.block, self.names))
        self._run(*recursion.tables_sql(self.block, self.names))

    def _changes(self, frontier: Snapshot, *, again: bool = False) -> bool:
        """Run 0; False if nothing has changed. Again, only what reads the recursion."""
        some = False
        for number, (term, evaluation) in enumerate(self.terms):
            rows = evaluation.changes(frontier) if term.itself is not None or not again else None
            if rows is not None:
                self._stage(number, rows, 0)
                some = True
        return some

    def _step(self, relation: sql.Identifier, number: int, run: int) -> bool:
        """Evaluate the recursive terms over the rows of one step; return False if they derive
        nothing.
        """
        some = False
        for place, (term, evaluation) in enumerate(self.terms):
            if term.itself is None:
                continue
            one = evaluation.block.branches[0].input(term.itself)
            rows = self.access.step(one, recursion.step(self.block, relation, number))
            if rows.num_rows and number >= self.most_steps:
                raise RecursionTooDeep.after(self.most_steps)
            if rows.num_rows:
                made = self._stage(place, evaluation.step(term.itself, rows), run)
                some = some or made > 0
        return some

    def _next_run(self) -> int:
        self.runs += 1
        return self.runs

    def _stage(self, number: int, rows: Result, run: int) -> int:
        with self.access.tally.phase("apply"):
            return self.staged.append(self.names.of_term(number).delta, rows, run)

    def _carry_out(self, *, full: bool) -> None:
        if self.each_once:
            statements = recursion.carry_out_set_sql(self.block, self.names, full=full)
        else:
            self._check_there(full=full)
            statements = recursion.carry_out_levels_sql(self.block, self.names, full=full)
        self._run(*statements)
        failpoint("state_merged")

    def _check_there(self, *, full: bool) -> None:
        row = (
            self.conn.execute(recursion.overdrawn_sql(self.names)).fetchone() if not full else None
        )
        if row and row[0]:
            raise TargetDiffers.at(
                self.names.name, f"{row[0]} rows of a recursion to delete do not exist."
            )

    def _run(self, *statements: sql.SQL | sql.Composed) -> int:
        with self.access.tally.phase("apply"):
            return self.staged.run(*statements)
