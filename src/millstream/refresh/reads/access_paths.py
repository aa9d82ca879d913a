"""Read the rows of an input by the cheapest access path, at the cut.

    lookup    a join with the keys; PostgreSQL's EXPLAIN estimates how many rows it returns
    read      the whole table, if it is small enough for the driver
    scan      the whole table, by Spark's tasks at the exported snapshot
    crossing  the rows that cross a temporal filter

A lookup is abandoned if its estimate exceeds `max_lookup_rows`, or if it returns more rows than
that while it runs. Then the whole table is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from millstream.algebra.block import Input
from millstream.algebra.table import BlockRows, Clock, SourceTable
from millstream.frontier.snapshot import Snapshot
from millstream.postgres import relations
from millstream.postgres.composed import Printed, listed
from millstream.postgres.connection import Connection, pinned, watchful
from millstream.postgres.copy import (
    Parts,
    column_definitions,
    fetch,
    fetch_parts,
    postgres_type,
    send,
)
from millstream.refresh.cut import Cut
from millstream.refresh.reads import read_sql
from millstream.refresh.reads.read_sql import FilterVersions
from millstream.refresh.reads.single_rows import SingleRowVersions
from millstream.refresh.report import InputReport, Path, Tally
from millstream.settings import Settings
from millstream.spark import parts
from millstream.spark.engine import Engine
from millstream.spark.scan import PAGES_PER_TASK, Scanned, scan
from millstream.store import staging
from millstream.store.names import BlockNames

# Up to this many pages (8 MB) the driver reads a whole table itself: starting tasks would cost
# more.
SMALL_PAGES = 1000
# Up to this many keys travel inside the statement; more go through a temporary table.
INLINE_KEYS = 5000
# How long a scan's session waits for a table that another session wants to empty or to alter.
SCAN_LOCK_TIMEOUT = "2s"


@dataclass(frozen=True)
class Estimate:
    """What PostgreSQL expects of a lookup."""

    rows: float
    sequential: bool


class ReadMeans(Protocol):
    """What reading needs of the application: Spark, the server's address for Spark's tasks, and the
    settings.
    """

    dsn: str
    settings: Settings

    def engine(self) -> Engine: ...


class AccessPaths:
    """Reads inputs for one refresh, and records how."""

    def __init__(
        self,
        cut: Cut,
        names: BlockNames,
        means: ReadMeans,
        versions: SingleRowVersions,
        *,
        consolidated: bool = False,
    ) -> None:
        self.cut = cut
        self.names = names
        self.versions = versions
        self.consolidated = consolidated
        self.settings: Mapping[str, str] = {}
        """The session settings of the definition, for sessions of Spark's tasks."""
        self.engine = means.engine
        self.dsn = means.dsn
        self.max_lookup_rows = means.settings.max_lookup_rows
        self.tally = Tally()
        self.scans: list[tuple[Input, Scanned, str]] = []
        self._sizes: dict[int, float] = {}

    # -- by key ----------------------------------------------------------------------------

    def lookup(
        self,
        one: Input,
        columns: Sequence[str],
        keys: pa.Table,
        *,
        before: int,
        nulls: Sequence[int] = (),
    ) -> pa.Table | Scanned:
        """Read the rows whose leaf columns equal one of the keys, or all rows if that is cheaper.

        `nulls` are the positions of the columns at which a NULL equals a NULL.
        """
        nulls = [place for place in nulls if keys.column(place).null_count > 0]
        distinct = read_sql.keys_sql(one, columns, self.rows_relation(keys))
        lookup = read_sql.Lookup(columns, distinct, nulls)
        relation = self.names.source(one.scan.table)
        filter_versions = self.versions.filter_versions(one)
        composed = read_sql.lookup_sql(
            one, relation, lookup, before=before, filter_versions=filter_versions
        )
        # It is sent twice, and may hold thousands of keys.
        query = Printed(composed.as_string(self.cut.conn))
        estimate = self._estimate(query, one)
        if estimate.rows > self.max_lookup_rows and self._has_statistics(one):
            return self.everything(
                one, before=before, why=f"a lookup would return about {estimate.rows:.0f} rows"
            )
        limited = sql.SQL("{} LIMIT {}").format(query, self.max_lookup_rows + 1)
        rows = fetch(self.cut.conn, limited, read_sql.schema_of(one, located=True))
        if rows.num_rows > self.max_lookup_rows:
            return self.everything(
                one, before=before, why=f"a lookup returned more than {self.max_lookup_rows} rows"
            )
        self._note(
            one,
            "filter" if estimate.sequential else "lookup",
            rows.num_rows,
            f"{keys.num_rows} keys",
        )
        return rows

    def by_condition(self, one: Input, query: sql.Composable, schema: pa.Schema, why: str) -> Parts:
        """Read the rows of a query that joins the rows of an input to rows that are sent."""
        printed = Printed(query.as_string(self.cut.conn))
        estimate = self._estimate(printed, one)
        found = fetch_parts(self.cut.conn, printed, schema, parts.PART_BYTES)
        self._note(one, "filter" if estimate.sequential else "lookup", found.rows, why)
        return found

    def rows_relation(self, rows: pa.Table, letter: str = "w") -> sql.Composable:
        """Send rows to PostgreSQL; return a FROM item of them, with columns w0, w1, ..."""
        if rows.num_rows > INLINE_KEYS:
            return self._rows_table(rows, letter)
        arrays = [
            sql.SQL("{}::{}[]").format(sql.Literal(column.to_pylist()), postgres_type(column.type))
            for column in rows.columns
        ]
        names = [sql.Identifier(f"{letter}{number}") for number in range(rows.num_columns)]
        return sql.SQL("(SELECT * FROM unnest({}) AS u ({}))").format(listed(arrays), listed(names))

    def _rows_table(self, rows: pa.Table, letter: str) -> sql.Identifier:
        named = rows.rename_columns([f"{letter}{number}" for number in range(rows.num_columns)])
        columns = column_definitions(named.schema)
        # The rows of one query have been read before those of the next are sent, so one table
        # serves both; two tables of one query have different letters.
        relation = sql.Identifier("pg_temp", f"ms_wanted_{staging.digest(columns.as_string())}")
        conn = self.cut.conn
        create = sql.SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {} ({}) ON COMMIT DROP")
        conn.execute(create.format(relation, columns))
        staging.clear(conn, [relation])
        send(conn, relation, named)
        conn.execute(sql.SQL("ANALYZE {}").format(relation))
        return relation

    def _estimate(self, query: sql.Composable, one: Input) -> Estimate:
        explain = sql.SQL("EXPLAIN (FORMAT JSON) {}").format(query)
        row = self.cut.conn.execute(explain).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        # EXPLAIN shows the alias of a block's view.
        return Estimate(
            plan["Plan Rows"],
            _scans_whole(plan, one.scan.alias if isinstance(one.scan.table, SourceTable) else "s"),
        )

    def _has_statistics(self, one: Input) -> bool:
        """Return True if the tables have statistics.

        Without them a lookup with a limit is tried.
        """
        table = one.scan.table
        if not isinstance(table, SourceTable):
            return True
        row = self.cut.conn.execute(
            "SELECT EXISTS (SELECT FROM pg_stats WHERE schemaname = %s AND tablename = %s)",
            (table.schema, table.name),
        ).fetchone()
        return row is not None and bool(row[0])

    def sizes(self, inputs: Sequence[Input]) -> dict[str, float]:
        """Return the number of rows in the tables of inputs, by PostgreSQL's estimate, if there is
        one.
        """
        tables = {one.name: one.scan.table for one in inputs}
        oids = {name: table.oid for name, table in tables.items() if isinstance(table, SourceTable)}
        unknown = set(oids.values()) - self._sizes.keys()
        if unknown:
            query = "SELECT oid::int8, reltuples::float8 FROM pg_class WHERE oid = ANY(%s::oid[])"
            self._sizes.update(self.cut.conn.execute(query, (list(unknown),)).fetchall())
        return {
            name: rows for name, oid in oids.items() if (rows := self._sizes.get(oid, -1.0)) >= 0
        }

    # -- all of it -------------------------------------------------------------------------

    def everything(self, one: Input, *, before: int, why: str = "") -> pa.Table | Scanned:
        """Read every row of the input."""
        # No other session can see what was written in this transaction.
        table = one.scan.table
        physical = None
        if isinstance(table, SourceTable) and table.oid not in self.cut.written:
            physical = self._physical(table)
        filter_versions = self.versions.filter_versions(one)
        if physical is None or sum(pages for _, pages in physical) <= SMALL_PAGES:
            query = read_sql.all_sql(
                one,
                self.names.source(one.scan.table),
                before=before,
                filter_versions=filter_versions,
            )
            return self._read(one, query, why)
        queries = [
            query.as_string(self.cut.conn)
            for name, pages in physical
            for query in _ranges(one, name, pages, before, filter_versions)
        ]
        # The scan's sessions queue behind a TRUNCATE that waits for the cut, and the cut waits for
        # the scan: give way.
        version, also = self.cut.conn.info.server_version, watchful(self.cut.conn)
        dsn = pinned(
            self.dsn,
            version=version,
            application_name="millstream scan",
            lock_timeout=SCAN_LOCK_TIMEOUT,
            **also,
            **self.settings,
        )
        scanned = scan(
            self.engine().spark, dsn, self.cut.exported, queries, read_sql.schema_of(one)
        )
        self.scans.append((one, scanned, why))
        return scanned

    def _read(self, one: Input, query: sql.Composable, why: str) -> pa.Table | Scanned:
        """Read the rows of a query in this session; many rows are sent to Spark in parts."""
        schema = read_sql.schema_of(one)
        found = fetch_parts(self.cut.conn, query, schema, parts.PART_BYTES)
        if found.is_one:
            (rows,) = found
            self._note(one, "read", rows.num_rows, why)
            return rows
        stored = self.engine().store(found, schema)
        self._note(one, "read", stored.count(), why)
        return stored

    def _physical(self, table: SourceTable) -> list[tuple[sql.Identifier, int]]:
        """Return the relations that contain the rows, with their size in pages."""
        # Asked at the cut: a partition may have come since the plan was made.
        partitions = relations.partitions(self.cut.conn, [table.oid])[table.oid]
        rows = self.cut.conn.execute(
            "SELECT n.nspname, c.relname, "
            "pg_relation_size(c.oid) / current_setting('block_size')::int "
            "FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE c.oid = ANY(%s::oid[]) AND c.relkind = 'r' ORDER BY c.oid",
            ([table.oid, *partitions],),
        ).fetchall()
        return [(sql.Identifier(schema, name), pages) for schema, name, pages in rows]

    def changes(self, one: Input, frontier: Snapshot) -> pa.Table:
        """Read the slice of the input's buffer, or the images of the inner block that it reads."""
        match one.scan.table:
            case Clock():
                images = read_sql.images_sql(one, self.versions.clock_images())
                return _consolidated(fetch(self.cut.conn, images, read_sql.schema_of(one)))
            case BlockRows():
                query = read_sql.changes_sql(one, self.names, self.versions.filter_versions(one))
                return self._changes(one, self.cut.conn, query)
            case SourceTable(oid=oid):
                conn, condition = self.cut.buffers.slice(oid, frontier)
                filter_versions = self.versions.filter_versions(one)
                query = read_sql.slice_sql(
                    one, condition, filter_versions, consolidated=self.consolidated
                )
                return self._changes(one, conn, query)
        return read_sql.schema_of(one).empty_table()

    def _changes(self, one: Input, conn: Connection, query: sql.Composable) -> pa.Table:
        rows = fetch(conn, query, read_sql.schema_of(one))
        self._note(one, "changes", rows.num_rows, "")
        return _consolidated(rows)

    def step(self, one: Input, relation: sql.Composable) -> pa.Table:
        """Read the rows of a recursion's last step, for its own term."""
        rows = fetch(
            self.cut.conn,
            read_sql.step_sql(one, relation, self.versions.filter_versions(one)),
            read_sql.schema_of(one),
        )
        self._note(one, "step", rows.num_rows, "")
        return rows

    def crossing(self, one: Input) -> pa.Table | Scanned | None:
        """Read the rows that cross a temporal filter of the input; None if no single row changed."""
        filter_versions = self.versions.filter_versions(one)
        if not filter_versions.may_cross:
            return None
        limit = self.max_lookup_rows + 1
        query = read_sql.crossing_sql(
            one, self.names.source(one.scan.table), filter_versions, limit=limit
        )
        estimate = self._estimate(query, one)
        rows = fetch(self.cut.conn, query, read_sql.schema_of(one, located=True))
        if rows.num_rows > self.max_lookup_rows:
            return self.everything(
                one,
                before=1,
                why=f"more than {self.max_lookup_rows} rows crossed a temporal filter",
            )
        self._note(one, "filter" if estimate.sequential else "lookup", rows.num_rows, "crossing")
        return rows

    def settle(self) -> None:
        """Record how many rows the scans have read, after Spark has run."""
        for one, scanned, why in self.scans:
            self._note(one, "scan", scanned.count(), why)
        self.scans.clear()

    def _note(self, one: Input, path: Path, rows: int, why: str) -> None:
        self.tally.inputs.append(InputReport(one.scan.alias, one.of, path, rows, why))


def _consolidated(images: pa.Table) -> pa.Table:
    """Remove images that cancel: the changed columns may not be those that are read."""
    if images.num_rows < 2:
        return images
    columns = [name for name in images.column_names if name not in ("__before", "__after")]
    summed = images.group_by(columns).aggregate([("__before", "sum")])
    left = summed.filter(pc.not_equal(summed["__before_sum"], 0))
    zeros = pa.array([0] * left.num_rows, pa.int64())
    return pa.table(
        [*(left[name] for name in columns), left["__before_sum"], zeros], schema=images.schema
    )


# A plan is EXPLAIN's JSON: values of any type.
def _scans_whole(plan: dict[str, Any], alias: str) -> bool:
    if plan.get("Node Type") == "Seq Scan" and plan.get("Alias", "").startswith(alias):
        return True
    return any(_scans_whole(child, alias) for child in plan.get("Plans", ()))


def _ranges(
    one: Input, relation: sql.Identifier, pages: int, before: int, filter_versions: FilterVersions
) -> list[sql.Composed]:
    """Return one query per range of pages; the last range has no end, for pages that are added
    later.
    """
    only = sql.SQL("ONLY {}").format(relation)
    ctid = sql.Identifier(one.scan.alias, "ctid")
    starts = list(range(0, max(pages, 1), PAGES_PER_TASK))
    queries = []
    for start in starts:
        where = [sql.SQL("{} >= {}::tid").format(ctid, _first_of(start))] if start else []
        if start != starts[-1]:
            end = _first_of(start + PAGES_PER_TASK)
            where.append(sql.SQL("{} < {}::tid").format(ctid, end))
        queries.append(
            read_sql.all_sql(one, only, before=before, where=where, filter_versions=filter_versions)
        )
    return queries


def _first_of(page: int) -> sql.Literal:
    """Return the position before the first row of a page."""
    return sql.Literal(f"({page},0)")
