"""Fill the staging tables of the cut's session: create, clear, copy rows, and give the server
statistics of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from psycopg import sql

from millstream.observe.failpoint import failpoint
from millstream.postgres.connection import Connection
from millstream.postgres.copy import column_definitions, send_each
from millstream.spark.parts import Result
from millstream.store import staging

# A table with more rows is analyzed: without statistics the server plans it as if it were tiny.
MANY_ROWS = 5_000
# The number of the run that derived a row of a recursion.
_RUN = pa.field("__run", pa.int32())


class StagingTables:
    """The staging tables that one block of a refresh fills."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self._filled = list[sql.Identifier]()

    def run(self, *statements: sql.SQL | sql.Composed) -> int:
        """Run statements; return the number of rows that the last one changed."""
        changed = 0
        for statement in statements:
            changed = self.conn.execute(statement).rowcount
        return changed

    def fill(self, relation: sql.Identifier, rows: Result) -> int:
        """Create a table of Spark's rows if there is none, and replace what it holds by these rows."""
        schema = _one_variant(rows.schema)
        self.run(_create_sql(relation, schema))
        if relation in self._filled:
            staging.clear(self.conn, [relation])
        self._filled.append(relation)
        return self._copy(relation, schema, (table.cast(schema) for table in rows.tables))

    def append(self, relation: sql.Identifier, rows: Result, run: int) -> int:
        """Add the rows of one run of a recursion to a table; return their number."""
        schema = _one_variant(rows.schema)
        return self._copy(
            relation,
            schema.append(_RUN),
            (_numbered(table.cast(schema), run) for table in rows.tables),
        )

    def _copy(self, relation: sql.Identifier, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
        count = send_each(self.conn, relation, schema, tables)
        self.analyze(relation, count)
        failpoint("staged")
        return count

    def analyze(self, relation: sql.Identifier, rows: int) -> None:
        """Collect statistics of a table that holds many rows."""
        if rows > MANY_ROWS:
            self.run(sql.SQL("ANALYZE {}").format(relation))


def _create_sql(relation: sql.Identifier, schema: pa.Schema) -> sql.Composed:
    create = sql.SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {} ({})")
    return create.format(relation, column_definitions(schema))


def _one_variant(schema: pa.Schema) -> pa.Schema:
    """Return the schema with only one of Arrow's large and small variants of each type."""
    types = [
        pa.string() if pa.types.is_large_string(field.type) else field.type for field in schema
    ]
    return pa.schema(list(zip(schema.names, types, strict=True)))


def _numbered(rows: pa.Table, run: int) -> pa.Table:
    return rows.append_column(_RUN, pa.repeat(pa.scalar(run, pa.int32()), rows.num_rows))
