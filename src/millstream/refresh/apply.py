"""Apply what Spark found, inside the cut's transaction.

stage      COPY into a temporary table
state      groups decoded, those whose extreme was lost recomputed, MERGE
target     what shall be done to each row, checked, then one MERGE (or one INSERT)
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pyarrow as pa

from millstream.errors import TargetDiffers
from millstream.observe.failpoint import failpoint
from millstream.plan.block import AggregateHead, Block
from millstream.refresh.report import Tally
from millstream.store import state, target
from millstream.store.connection import Connection, users_path
from millstream.store.names import Names
from millstream.store.rows import fetch, postgres_type, send

# Recomputes groups: their keys in, their state out.
Recompute = Callable[[AggregateHead, pa.Table], pa.Table]


class Apply:
    """Applies one block's result to one stream table."""

    def __init__(self, conn: Connection, block: Block, names: Names, tally: Tally) -> None:
        self.conn = conn
        self.block = block
        self.names = names
        self.tally = tally

    def difference(self, rows: pa.Table, recompute: Recompute) -> None:
        """Apply a change."""
        head = self.block.head
        with self.tally.phase("apply"):
            self._stage(rows)
            if head is not None:
                self._groups(head, absolute=False)
        if head is not None:
            if head.netted:
                self._recompute(head, recompute)
            self._merge_state(head)
        self._merge_target(full=False)

    def whole(self, rows: pa.Table) -> None:
        """Apply a complete result, as the difference from what is stored."""
        head = self.block.head
        with self.tally.phase("apply"):
            self._stage(rows)
            if head is not None:
                self._groups(head, absolute=True)
                self._run(state.vanished_sql(head, self.names))
        if head is not None:
            self._merge_state(head)
        self._merge_target(full=True)

    # -- steps -----------------------------------------------------------------------------

    def _stage(self, rows: pa.Table) -> None:
        columns = ", ".join(f'"{field.name}" {postgres_type(_plain(field.type))}' for field in rows.schema)
        name = self.names.delta.removeprefix("pg_temp.")
        self._run(f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ({columns}) ON COMMIT DELETE ROWS")
        self._run(f"TRUNCATE {self.names.delta}")
        send(self.conn, self.names.delta, _plainly(rows))
        self._analyze(self.names.delta, rows.num_rows)
        failpoint("staged")

    def _groups(self, head: AggregateHead, *, absolute: bool) -> None:
        self._run(state.groups_table_sql(head, self.names))
        self._run(state.decode_sql(head, self.names, absolute=absolute))

    def _recompute(self, head: AggregateHead, recompute: Recompute) -> None:
        with self.tally.phase("apply"):
            schema = pa.schema([(key.name, key.wire.arrow_type) for key in head.keys] or [("one", pa.int32())])
            lost = fetch(self.conn, state.lost_sql(head, self.names), schema.append(pa.field("__one", pa.int32())))
        if lost.num_rows == 0:
            return
        rows = recompute(head, lost.select(schema.names))
        with self.tally.phase("apply"):
            self._stage(rows)
            self._run(state.forget_sql(head, self.names))
            self._groups(head, absolute=True)

    def _merge_state(self, head: AggregateHead) -> None:
        with self.tally.phase("apply"):
            try:
                self._run(state.merge_sql(head, self.names))
            except psycopg.errors.CheckViolation as error:
                raise TargetDiffers.at(self.names.name, f"A group lost rows it did not have: {error}") from error
        failpoint("state_merged")

    def _merge_target(self, *, full: bool) -> None:
        with self.tally.phase("apply"):
            self._run(target.rows_table_sql(self.block, self.names))
            for statement in target.plan_sql(self.block, self.names, full=full):
                self._run(statement)
            counts = self._counts()
            if not counts:
                return
            only_new = set(counts) == {"I"}
            merge = target.insert_sql if only_new else target.merge_sql
            self._carry_out(merge(self.block, self.names), sum(counts.values()))
            for op, count in counts.items():
                self.tally.changed[op] += count
        failpoint("target_merged")

    def _carry_out(self, statement: str, expected: int) -> None:
        try:
            # The triggers that fire here are the user's, so the path is too; the statement itself needs none.
            with users_path(self.conn):
                done = self._run(statement)
        except psycopg.errors.UniqueViolation as error:
            raise TargetDiffers.at(self.names.name, f"A row came that is there already: {error}") from error
        if done != expected:
            raise TargetDiffers.at(self.names.name, f"{expected} rows were to change, {done} did.")

    def _counts(self) -> dict[str, int]:
        query = f"SELECT op, count(*) FROM {self.names.rows} WHERE op IS NOT NULL GROUP BY op"
        counts: dict[str, int] = dict(self.conn.execute(query.encode()).fetchall())
        if "?" in counts:
            raise TargetDiffers.at(self.names.name, f"{counts['?']} rows that should go are not there.")
        return counts

    def _analyze(self, relation: str, rows: int) -> None:
        # Without statistics a large temporary table is planned as if it were tiny.
        if rows > 5_000:
            self._run(f"ANALYZE {relation}")

    def _run(self, statement: str) -> int:
        return self.conn.execute(statement.encode()).rowcount


def _plain(type_: pa.DataType) -> pa.DataType:
    """Arrow's large and small variants as the one type we stage."""
    return pa.string() if pa.types.is_large_string(type_) else type_


def _plainly(rows: pa.Table) -> pa.Table:
    return rows.cast(pa.schema([(field.name, _plain(field.type)) for field in rows.schema]))
