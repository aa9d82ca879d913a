"""Apply the rows from Spark, inside the cut's transaction.

stage      COPY into a temporary table
state      decode groups, recompute those whose extreme was deleted, MERGE
target     decide what to do with each row, check it, then one MERGE or one INSERT
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import psycopg
import pyarrow as pa
from psycopg import sql

from millstream.algebra.block import (
    AggregateBlock,
    AggregateHead,
    Block,
    MaterializedBlock,
    WindowBlock,
)
from millstream.catalog.target import targets, write_guard
from millstream.errors import TargetDiffers, TriggerInterferes
from millstream.observe import log
from millstream.observe.failpoint import failpoint
from millstream.postgres.connection import Connection, users_path
from millstream.postgres.copy import fetch
from millstream.refresh.job import Job
from millstream.refresh.report import Tally
from millstream.refresh.staging_tables import StagingTables
from millstream.spark.parts import Result
from millstream.store import group_rows, materialized_rows, staging, state, target


class Groups(Protocol):
    """Evaluates groups: their keys in, their state out, or their rows."""

    def groups(
        self, head: AggregateHead, keys: pa.Table, *, group_rows: bool = False
    ) -> Result: ...

    def everything(self, *, group_rows: bool = False) -> Result: ...


class Apply:
    """Applies one block's result: to its state, and to the stream table if it is the last of its
    chain.
    """

    def __init__(self, conn: Connection, job: Job, block: Block, tally: Tally) -> None:
        self.conn = conn
        self.block = block
        self.names = job.names.at(block.position)
        self.tally = tally
        self.inner = block is not job.block
        self.row_triggers = job.row_triggers
        """Triggers of the user's that may change a row before it is written."""
        self.staged = StagingTables(conn)

    def difference(self, rows: Result | None, evaluation: Groups) -> None:
        """Apply a change, if there is one; an inner block without one has an empty table of images."""
        if rows is not None or self.inner:
            staging.clear(self.conn, self.names.staging())
        if self.inner:
            self.staged.run(state.changes_table_sql(self.block, self.names))
        if rows is not None:
            self._apply(rows, evaluation, full=False)

    def whole(self, rows: Result, evaluation: Groups) -> None:
        """Apply a complete result, as the difference from what is stored."""
        staging.clear(self.conn, self.names.staging())
        if isinstance(self.block, MaterializedBlock):
            self.staged.run(state.changes_table_sql(self.block, self.names))
        self._apply(rows, evaluation, full=True)

    def _apply(self, rows: Result, evaluation: Groups, *, full: bool) -> None:
        """Apply a change, or with `full` a complete result, as the kind of the block demands."""
        match self.block:
            case WindowBlock(head=head):
                self._stage_groups(head, rows, full=full)
                self._stage_group_rows(head, evaluation, full=full)
                self._change_rows(full=full)
                self._merge_state(head)
            case MaterializedBlock():
                self._stage_delta(rows)
                self._change_rows(full=full)
            case AggregateBlock(head=head):
                self._stage_groups(head, rows, full=full)
                if full:
                    self._merge_whole_groups(head, evaluation)
                else:
                    self._merge_changed_groups(head, evaluation)
                self._apply_to_target(full=full)
            case _:
                self._stage_delta(rows)
                self._apply_to_target(full=full)

    def _stage_delta(self, rows: Result) -> None:
        with self.tally.phase("apply"):
            self.staged.fill(self.names.delta, rows)

    def _stage_groups(self, head: AggregateHead, rows: Result, *, full: bool) -> None:
        """Stage the touched groups; of a complete result, also the stored groups that it does not
        have.
        """
        with self.tally.phase("apply"):
            self.staged.fill(self.names.delta, rows)
            self._decode_groups(head, absolute=full)
            if full:
                self._add_vanished_groups(head)

    def _merge_changed_groups(self, head: AggregateHead, evaluation: Groups) -> None:
        if head.recoverable:
            self._recompute_groups(head, evaluation)
        self._stage_holistic_rows(head, evaluation)
        with self._images():
            self._merge_state(head)

    def _merge_whole_groups(self, head: AggregateHead, evaluation: Groups) -> None:
        if head.holistic:
            rows = evaluation.everything(group_rows=True)
            with self.tally.phase("apply"):
                self.staged.fill(self.names.group_rows, rows)
        self._merge_state(head)

    def _apply_to_target(self, *, full: bool) -> None:
        if not self.inner:
            self._merge_target(full=full)

    def _change_rows(self, *, full: bool) -> None:
        """Update materialized rows: compute those of the touched parts, compare, change what
        differs.
        """
        statements = [
            *materialized_rows.new_sql(self.block, self.names, full=full),
            *materialized_rows.change_sql(self.block, self.names, full=full),
        ]
        with self.tally.phase("apply"):
            self.staged.run(*statements)

    def _stage_group_rows(self, head: AggregateHead, evaluation: Groups, *, full: bool) -> None:
        """Stage all rows of the touched partitions of a window, evaluated by Spark."""
        if full:
            found = evaluation.everything(group_rows=True)
        else:
            keys = self._keys(head, group_rows.wanted_sql(head, self.names))
            if head.keys and keys.num_rows == 0:
                self.staged.fill(self.names.group_rows, Result.of(group_rows.no_rows_sql(head)))
                return
            found = evaluation.groups(head, keys, group_rows=True)
        self.staged.fill(self.names.group_rows, found)

    # -- steps -----------------------------------------------------------------------------

    def _decode_groups(self, head: AggregateHead, *, absolute: bool) -> None:
        """Decode the staged rows into groups that add to the state, or replace it if `absolute`."""
        self.staged.run(state.groups_table_sql(head, self.names))
        self.staged.run(state.decode_sql(head, self.names, absolute=absolute))

    def _add_vanished_groups(self, head: AggregateHead) -> None:
        """Add the stored groups that a complete result does not have, so that they are deleted."""
        if renamed := state.renamed_sql(head, self.names):
            self.staged.run(renamed)
        self.staged.run(state.vanished_sql(head, self.names))

    def _keys(self, head: AggregateHead, query: sql.Composable) -> pa.Table:
        """Fetch the keys of groups, in the form in which Spark gets them."""
        with self.tally.phase("apply"):
            schema = pa.schema(
                [(key.name, key.wire.arrow_type) for key in head.keys] or [("one", pa.int32())]
            )
            return fetch(self.conn, query, schema.append(pa.field("__one", pa.int32()))).select(
                schema.names
            )

    def _stage_holistic_rows(self, head: AggregateHead, evaluation: Groups) -> None:
        """Stage the rows of the touched groups, for the aggregates that PostgreSQL computes over
        all of them.
        """
        if not head.holistic:
            return
        keys = self._keys(head, group_rows.wanted_sql(head, self.names))
        some = keys.num_rows or not head.keys
        rows = (
            evaluation.groups(head, keys, group_rows=True)
            if some
            else Result.of(group_rows.no_rows_sql(head))
        )
        with self.tally.phase("apply"):
            self.staged.fill(self.names.group_rows, rows)

    def _recompute_groups(self, head: AggregateHead, evaluation: Groups) -> None:
        """Evaluate groups in full whose state the difference does not give, such as a minimum that
        was deleted.
        """
        lost = self._keys(head, state.lost_sql(head, self.names))
        if lost.num_rows == 0:
            return
        rows = evaluation.groups(head, lost)
        with self.tally.phase("apply"):
            self.staged.fill(self.names.delta, rows)
            self.staged.run(state.forget_sql(head, self.names))
            self._decode_groups(head, absolute=True)

    @contextmanager
    def _images(self) -> Iterator[None]:
        """Record the old and new rows of an inner block as images, for the blocks that read it."""
        if self.inner:
            self.staged.run(state.images_sql(self.block, self.names, "D"))
        yield
        if self.inner:
            self.staged.run(state.images_sql(self.block, self.names, "I"))
            self.staged.run(state.unchanged_sql(self.block, self.names))

    def _merge_state(self, head: AggregateHead) -> None:
        with self.tally.phase("apply"):
            try:
                holistic = group_rows.holistic_sql(self.block, head, self.names)
                self.staged.run(state.merge_sql(head, self.names, holistic))
            except psycopg.errors.CheckViolation as error:
                raise TargetDiffers.at(
                    self.names.name,
                    f"The stored state of a group has fewer rows than were removed from it: {error}",
                ) from error
        failpoint("state_merged")

    def _merge_target(self, *, full: bool) -> None:
        with self.tally.phase("apply"):
            self.staged.run(target.rows_table_sql(self.block, self.names))
            self.staged.run(*target.plan_sql(self.block, self.names, full=full))
            counts = self._counts()
            if not counts:
                return
            self._fit_index()
            only_new = set(counts) == {"I"}
            merge = target.insert_sql if only_new else target.merge_sql
            self._carry_out(merge(self.block, self.names), sum(counts.values()))
            for op, count in counts.items():
                self.tally.changed[op] += count
        failpoint("target_merged")

    def _fit_index(self) -> None:
        """If a key is too long for the unique index, replace the index by one for keys of any
        length.
        """
        query = target.long_keys_sql(self.block, self.names)
        row = self.conn.execute(query).fetchone() if query else None
        if row is None or not row[0]:
            return
        found = self.conn.execute(target.unique_index_sql(self.block, self.names)).fetchall()
        for schema, name in found:
            index = f"{schema}.{name}"
            log.warning("keys too long for a unique index", table=self.names.name, index=index)
            self.staged.run(sql.SQL("DROP INDEX {}").format(sql.Identifier(schema, name)))
            self.staged.run(*target.long_index_sql(self.block, self.names))
            targets.mark(self.conn, self.names.id)

    def _carry_out(self, statement: sql.Composed, expected: int) -> None:
        qualified = self.names.target.as_string()
        try:
            # The user's triggers fire here, and expect the user's search_path; the statement itself
            # needs none.
            with write_guard.write_permit(self.conn, qualified), users_path(self.conn):
                done = self.staged.run(statement)
        except psycopg.errors.UniqueViolation as error:
            raise TargetDiffers.at(
                self.names.name, f"A row to insert already exists: {error}"
            ) from error
        if self.row_triggers:
            self._check_written(done, expected)
        if done != expected:
            raise TargetDiffers.at(
                self.names.name, f"{expected} rows should have changed, {done} did."
            )

    def _check_written(self, done: int, expected: int) -> None:
        """Check that the planned rows were written: a BEFORE ROW trigger may have dropped or
        changed some.
        """
        query = target.unwritten_sql(self.block, self.names)
        unwritten = self.conn.execute(query).fetchall()[0][0]
        if done != expected or unwritten:
            what = f"Of {expected} rows, {done} were written, {unwritten} of them different from the query's rows."
            qualified = self.names.target.as_string()
            raise TriggerInterferes.by(self.names.name, qualified, self.row_triggers, what)

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = dict(self.conn.execute(target.counts_sql(self.names)).fetchall())
        if "?" in counts:
            raise TargetDiffers.at(self.names.name, f"{counts['?']} rows to delete do not exist.")
        return counts
