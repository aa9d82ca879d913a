"""Move rows between PostgreSQL and Arrow, column by column, inside the caller's transaction.

COPY in CSV both ways: PostgreSQL prints NULL as nothing and an empty string as "", Arrow reads
and writes the same, and neither side builds a row in Python. Only the types of `algebra.wire`
travel, so there is one codec for small reads and for staging.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import IO

import psycopg
import pyarrow as pa
from psycopg import generators, sql
from psycopg.abc import PQGen
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Wait
from pyarrow import csv

from millstream.postgres.composed import listed
from millstream.postgres.connection import Connection


def fetch(conn: Connection, query: sql.Composable, schema: pa.Schema) -> pa.Table:
    """Fetch the rows of a query, whose columns must be those of the schema, in order."""
    data, statement = io.BytesIO(), _copy_sql(query).as_bytes(conn)
    with conn.lock:
        conn.wait(_copied(conn.pgconn, statement, data.write))
    return parse_csv(data.getbuffer(), schema)


def fetch_parts(
    conn: Connection, query: sql.Composable, schema: pa.Schema, part_bytes: int
) -> Parts:
    """Fetch the rows in parts of about this size; if there are several, they are buffered in a
    file.
    """
    parts, statement = Parts(schema, part_bytes), _copy_sql(query).as_bytes(conn)
    try:
        with conn.lock:
            conn.wait(_copied(conn.pgconn, statement, parts.write))
        if parts.failed is not None:
            raise parts.failed
    except BaseException:
        parts.close()
        raise
    return parts


def _copy_sql(query: sql.Composable) -> sql.Composed:
    # Every value in quotes: Arrow would take U+FEFF at the very beginning for a mark and drop it.
    return sql.SQL("COPY ({}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(query)


class Parts:
    """Rows in parts of about one size. The last is in memory, those before it are in a temporary
    file.
    """

    def __init__(self, schema: pa.Schema, part_bytes: int) -> None:
        self.schema = schema
        self.part_bytes = part_bytes
        self._last = io.BytesIO()
        self._file: IO[bytes] | None = None
        self._sizes = list[int]()
        self.rows = 0
        """How many rows were taken."""
        self.failed: OSError | None = None
        """Why the file could not be written."""

    def write(self, row: memoryview) -> None:
        """Take one row of COPY's.

        After an error of the disk the other rows are taken and dropped: an exception in the middle
        of COPY would end the session, and with it the refreshes of all other stream tables in the
        same transaction.
        """
        if self.failed is not None:
            return
        self.rows += 1
        self._last.write(row)
        if self._last.tell() >= self.part_bytes:
            try:
                self._spill()
            except OSError as error:
                self.failed = error

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="millstream-rows-")  # noqa: SIM115 - closed by `close`
        self._file.write(self._last.getbuffer())
        # What is only buffered would be missed when it is read.
        self._file.flush()
        self._sizes.append(self._last.tell())
        self._last = io.BytesIO()

    @property
    def is_one(self) -> bool:
        """True if no part had to be written to a file."""
        return self._file is None

    def __iter__(self) -> Iterator[pa.Table]:
        """Read them, once."""
        try:
            if self._file is not None:
                self._file.seek(0)
                for size in self._sizes:
                    yield parse_csv(memoryview(self._file.read(size)), self.schema)
            if self._last.tell() or self._file is None:
                yield parse_csv(self._last.getbuffer(), self.schema)
        finally:
            self.close()

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            # If the disk is full, closing cannot write the rest either.
            with suppress(OSError):
                self._file.close()


def _copied(pgconn: PGconn, statement: bytes, write: Callable[[memoryview], object]) -> PQGen[None]:
    """Read everything that COPY sends, without psycopg's wait for each row."""
    try:
        # By the extended protocol: it takes one statement only.
        pgconn.send_query_params(statement, None)
        _check((yield from generators.execute(pgconn)))
        size, row = pgconn.get_copy_data(1)
        while size >= 0:
            if size > 0:
                write(row)
            else:
                while not (yield Wait.R):
                    continue
                pgconn.consume_input()
            size, row = pgconn.get_copy_data(1)
        _check((yield from generators.fetch_many(pgconn)))
    except psycopg.Error:
        raise
    except BaseException:
        # Interrupted within the rows: the connection cannot be used any more.
        pgconn.finish()
        raise


def _check(results: list[PGresult]) -> None:
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)


def parse_csv(data: memoryview, schema: pa.Schema) -> pa.Table:
    """Parse rows from PostgreSQL's CSV."""
    if not data:
        return schema.empty_table()
    return csv.read_csv(
        pa.py_buffer(data),
        # One block: a value longer than a block would be refused.
        read_options=csv.ReadOptions(
            column_names=schema.names, block_size=min(len(data) + 1, 2**31 - 1)
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def send(conn: Connection, relation: sql.Identifier, table: pa.Table) -> None:
    """Append the rows to a (temporary) relation that has these columns."""
    send_each(conn, relation, table.schema, [table])


def send_each(
    conn: Connection, relation: sql.Identifier, schema: pa.Schema, tables: Iterable[pa.Table]
) -> int:
    """Append the rows of several tables by one COPY; return their number."""
    count, left = 0, iter(tables)
    first = next((table for table in left if table.num_rows), None)
    if first is None:
        return 0
    columns = listed(map(sql.Identifier, schema.names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(relation, columns)
    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    with (
        conn.cursor() as cursor,
        cursor.copy(statement) as copy,
    ):
        for table in chain([first], left):
            data = io.BytesIO()
            csv.write_csv(table, data, options)
            copy.write(data.getbuffer())
            count += table.num_rows
    return count


_POSTGRES = {
    pa.bool_(): sql.SQL("boolean"), pa.int16(): sql.SQL("smallint"), pa.int32(): sql.SQL("integer"),
    pa.int64(): sql.SQL("bigint"), pa.float32(): sql.SQL("real"),
    pa.float64(): sql.SQL("double precision"), pa.string(): sql.SQL("text"),
}  # fmt: skip


def postgres_type(type_: pa.DataType) -> sql.SQL:
    """Return the PostgreSQL type of a wire column."""
    return _POSTGRES[type_]


def column_definitions(schema: pa.Schema) -> sql.Composed:
    """Return the columns of a table that holds rows of this schema, for CREATE TABLE."""
    defined = sql.SQL("{} {}")
    return listed(
        defined.format(sql.Identifier(field.name), postgres_type(field.type)) for field in schema
    )
