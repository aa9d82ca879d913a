"""Compare a stream table with its query, as bags, to the last digit.

Values are compared by their exact text, numbers by value: 1.0 equals 1.00, and -0 equals 0. If an
aggregate, DISTINCT or a set operation chooses among equal values, intervals and bpchar without a
length are compared by value too, since PostgreSQL's own choice between '1 day' and '24 hours', or
between values with different trailing blanks, depends on the order of the rows. The last digits of
a floating-point sum depend on the order of its rows, in PostgreSQL too: such columns are compared
rounded to 12 significant digits (`real` to 5), and the result says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from millstream.algebra.block import Block, GroupedBlock, StatelessBlock, WindowBlock
from millstream.algebra.types import Column
from millstream.postgres.composed import Printed, aliased, listed
from millstream.postgres.connection import Connection
from millstream.store.staging_columns import text_of

_FLOATS = ("float4", "float8")


@dataclass(frozen=True)
class Difference:
    """The missing and the additional rows of a stream table."""

    rows: int
    missing: int
    extra: int
    sample: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class ComparedColumns:
    """The columns of a stream table, and how their values are compared."""

    columns: Sequence[Column]
    rounded: Sequence[str] = ()
    """The names of columns whose last digits depend on the order of additions."""
    chosen: bool = False
    """True if the query chooses among equal values."""

    @property
    def names(self) -> sql.Composed:
        return listed(sql.Identifier(column.name) for column in self.columns)

    @property
    def values(self) -> sql.Composed:
        """The expressions that are compared."""
        return listed(
            _compared(column, column.name in self.rounded, self.chosen) for column in self.columns
        )


def compare(
    conn: Connection, query: Printed, target: sql.Identifier, columns: ComparedColumns
) -> Difference:
    """Read the stream table and its query in one statement, in the caller's transaction, and
    subtract each from the other.
    """
    bags = sql.SQL(
        "WITH expected AS MATERIALIZED (SELECT {compared} FROM ({query}) AS q ({names})), "
        "actual AS MATERIALIZED (SELECT {compared} FROM {target} AS q), "
        "missing AS MATERIALIZED (SELECT * FROM expected EXCEPT ALL SELECT * FROM actual), "
        "extra AS MATERIALIZED (SELECT * FROM actual EXCEPT ALL SELECT * FROM expected) "
    ).format(
        compared=columns.values,
        query=query,
        names=columns.names,
        target=target,
    )
    sizes = sql.SQL(
        "{} SELECT (SELECT count(*) FROM expected), (SELECT count(*) FROM missing), "
        "(SELECT count(*) FROM extra)"
    )
    counts = conn.execute(sizes.format(bags)).fetchone()
    assert counts is not None
    sample = _sample(conn, bags) if counts[1] or counts[2] else ()
    rows, missing, extra = counts
    return Difference(rows, missing, extra, sample)


# As PostgreSQL compares intervals: a month has 30 days, a day 24 hours. Infinite intervals (since
# 17) have no fields.
_LENGTH = sql.SQL(
    "CASE WHEN isfinite({x}) THEN trim_scale(((extract(year FROM {x}) * 12 + extract(month FROM {x})) * 30"
    " + extract(day FROM {x})) * 86400 + extract(hour FROM {x}) * 3600 + extract(minute FROM {x}) * 60"
    " + extract(second FROM {x}))::text ELSE ({x})::text END"
)


def _compared(column: Column, rounded: bool, chosen: bool) -> sql.Composed:
    value = sql.Identifier("q", column.name)
    # By text, since json has no equality operator.
    text: sql.Composable = text_of(value, column.type)
    if rounded:
        digits = "9.9999EEEE" if column.type.base == "float4" else "9.99999999999EEEE"
        text = sql.SQL("to_char({} + 0, {})").format(value, digits)
    elif column.type.base == "numeric":
        text = sql.SQL("trim_scale({})::text").format(value)
    elif column.type.base in _FLOATS:
        text = sql.SQL("({} + 0)::text").format(value)
    elif chosen and column.type.base == "interval" and column.type.kind == "base":
        text = _LENGTH.format(x=value)
    elif chosen and column.type.keeps_blanks:
        text = sql.SQL("rtrim({}, ' ')").format(text)
    return aliased(text, column.name)


def _sample(conn: Connection, bags: sql.Composed) -> tuple[dict[str, Any], ...]:
    query = sql.SQL(
        "{} (SELECT 'missing', to_jsonb(__missing) FROM missing AS __missing LIMIT 5) UNION ALL "
        "(SELECT 'extra', to_jsonb(__extra) FROM extra AS __extra LIMIT 5)"
    )
    rows = conn.execute(query.format(bags)).fetchall()
    return tuple({"side": side, "row": row} for side, row in rows)


def chooses(blocks: Sequence[Block]) -> bool:
    """Return True if a query chooses among equal values.

    A query that only filters, computes and joins does not.
    """
    return any(not isinstance(block, StatelessBlock) for block in blocks)


def rounded_columns(blocks: Sequence[Block]) -> tuple[str, ...]:
    """Return the output columns that depend on the order of floating-point additions."""
    last = blocks[-1]
    floats = [output for output in last.outputs if output.column.type.base in _FLOATS]
    if any(totals(block) for block in blocks[:-1]):
        return tuple(output.column.name for output in floats)
    return tuple(
        output.column.name
        for output in floats
        if any(total in output.expr for total in totals(last))
    )


def totals(block: Block) -> list[str]:
    """Return the columns of a block's state that add floats or may do so, such as all holistic
    aggregates.
    """
    if not isinstance(block, GroupedBlock):
        return []
    added = [one.name for one in block.head.accumulators if one.strategy == "recompute"]
    partition = (
        [one.name for one in block.head.accumulators] if isinstance(block, WindowBlock) else []
    )
    return [
        f's."{name}"' for name in (*added, *partition, *(one.name for one in block.head.holistic))
    ]
