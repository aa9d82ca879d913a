"""A stream table as a Spark DataFrame, read at one snapshot."""

from __future__ import annotations

from psycopg import sql
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, functions

from millstream.algebra.types import Column
from millstream.algebra.wire import Wire, number_wire_of, wire_of
from millstream.postgres.composed import listed
from millstream.postgres.copy import fetch
from millstream.service.app import App
from millstream.service.verb import verb
from millstream.store.staging_columns import encoded

import pyarrow as pa  # isort: skip

# Types that Spark has too; all others are converted to text.
_NATIVE = {"date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


@verb
def to_dataframe(app: App, name: str) -> DataFrame:
    """Return the current rows; numbers, dates and timestamps have Spark's own types, all others are
    text.
    """
    table = app.named(name)
    columns = [output.column for output in app.plan(table).block.outputs]
    wires = [wire_of(column.type) for column in columns]
    native = [column.type.base in _NATIVE for column in columns]
    values = [
        _sent(column, wire, native=own)
        for column, wire, own in zip(columns, wires, native, strict=True)
    ]
    types = [
        pa.string() if own else wire.arrow_type for wire, own in zip(wires, native, strict=True)
    ]
    names = [f"c{number}" for number in range(len(columns))]
    schema = pa.schema([*zip(names, types, strict=True), ("__one", pa.int32())])
    query = sql.SQL("SELECT {columns}, 1 FROM {table}").format(
        columns=listed(values), table=sql.Identifier(table.schema_name, table.name)
    )
    rows = fetch(app.conn, query, schema)
    made = app.engine().spark.createDataFrame(rows.select(names))
    return made.select(
        *(_converted(name, column) for name, column in zip(names, columns, strict=True))
    )


def _sent(column: Column, wire: Wire, *, native: bool) -> sql.Composable:
    """Return the SQL that sends a column: the text of what Spark converts itself."""
    own = sql.Identifier(column.name)
    return sql.SQL("{}::text").format(own) if native else encoded(own, wire)


def _converted(name: str, column: Column) -> SparkColumn:
    """Return a column with Spark's own type, under the column's name."""
    type_ = _spark_type(column.type.base, number_wire_of(column.type))
    value = functions.col(name)
    return (value.cast(type_) if type_ else value).alias(column.name)


def _spark_type(base: str, number: object) -> str | None:
    if base in _NATIVE:
        return _NATIVE[base]
    spark = getattr(number, "spark", None)
    return spark if isinstance(spark, str) and spark.startswith("decimal") else None
