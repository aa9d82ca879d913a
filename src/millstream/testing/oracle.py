"""The oracle: a stream table must be what PostgreSQL itself answers to its query, at the same
snapshot.

It shares nothing with the product's own comparison or encoding, and knows neither plans nor blocks:
only the user's query and the stored table. Run it on the connection of a cut, before the cut's
transaction ends.

    columns   the same names, types (with modifier) and collations, in the same order
    rows      the same bag: numeric and float by value, everything else by its exact text
    close     relative tolerance for floats, which differ with the order of adding in PostgreSQL too

The server prints the rows by COPY, which calls each type's own output function and no cast: a user
may define a cast to text, which prints something else.

`check` says nothing when all is well, and otherwise raises an AssertionError that prints the rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from millstream.algebra.table import quoted
from millstream.postgres.connection import Connection, users_path

Row: TypeAlias = "tuple[str | None, ...]"

_SHOWN = 20
_HIDDEN = "__ms_row_id"


@dataclass(frozen=True)
class Shape:
    """A column as the server describes it."""

    name: str
    type: str
    collation: str
    base: str
    """The bare type underneath domains; decides how values are compared."""

    def __str__(self) -> str:
        return f"{self.name} {self.type}" + (f" COLLATE {self.collation}" if self.collation else "")


@dataclass(frozen=True)
class OracleDifference:
    """The rows the query has and the table lacks, and the other way round."""

    missing: tuple[Row, ...]
    extra: tuple[Row, ...]
    rows: int
    """How many rows the query has."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra)

    def __str__(self) -> str:
        lines = [f"{len(self.missing)} rows missing, {len(self.extra)} rows too many"]
        for sign, rows in (("-", self.missing), ("+", self.extra)):
            lines += [f"  {sign} {row}" for row in sorted(rows, key=str)[:_SHOWN]]
            lines += [f"  {sign} ... {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
        return "\n".join(lines)


def check(conn: Connection, query: str, target: str, *, close: float = 0.0) -> int:
    """Compare; the number of rows when all is well. `target` is a table's name as SQL writes it."""
    expected, actual = shape_of_query(conn, query), shape_of_table(conn, target)
    if [str(one) for one in expected] != [str(one) for one in actual]:
        raise AssertionError(
            f"{target} has other columns than its query\n{_columns(expected, actual)}\n{query}"
        )
    found = difference(conn, query, target, expected, close=close)
    if found:
        names = ", ".join(one.name for one in expected)
        raise AssertionError(f"{target} ({names}) differs from its query: {found}\n{query}")
    return found.rows


# -- columns ---------------------------------------------------------------------------------

_SHAPE = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod),
           CASE a.attcollation WHEN 0 THEN '' ELSE a.attcollation::regcollation::text END, b.typname
    FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
    JOIN pg_type AS b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> %s
    ORDER BY a.attnum
"""


def shape_of_query(conn: Connection, query: str) -> tuple[Shape, ...]:
    """Return the columns of a query's result; a view tells them, in a savepoint that is rolled
    back.
    """
    with users_path(conn), conn.transaction(force_rollback=True):
        conn.execute(f"CREATE TEMPORARY VIEW oracle_query AS {query}".encode())
        return shape_of_table(conn, "pg_temp.oracle_query")


def shape_of_table(conn: Connection, name: str) -> tuple[Shape, ...]:
    """Return the columns of a table, without the one that tells rows apart."""
    with users_path(conn):
        return tuple(Shape(*row) for row in conn.execute(_SHAPE, (name, _HIDDEN)))


def _columns(expected: tuple[Shape, ...], actual: tuple[Shape, ...]) -> str:
    return f"  query: {', '.join(map(str, expected))}\n  table: {', '.join(map(str, actual))}"


# -- rows ------------------------------------------------------------------------------------


def difference(
    conn: Connection, query: str, target: str, columns: tuple[Shape, ...], *, close: float = 0.0
) -> OracleDifference:
    """Subtract each from the other, as bags.

    One statement reads both, so both are of one snapshot.
    """
    names = ", ".join(quoted(column.name) for column in columns)
    listed = f", {names}" if columns else ""
    statement = (
        f"COPY (SELECT true{listed} FROM ({query}) AS q{f' ({names})' if columns else ''} "
        f"UNION ALL SELECT false{listed} FROM {target} AS t) TO STDOUT"
    )
    expected, actual = Counter[Row](), Counter[Row]()
    readers = [_READERS.get(column.base) for column in columns]
    # The user's query: its names are read along the user's path.
    with users_path(conn), conn.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for is_expected, *row in copy.rows():
            values = (
                read(text) if read and text else text
                for text, read in zip(row, readers, strict=True)
            )
            (expected if is_expected == "t" else actual)[tuple(values)] += 1
    floats = [place for place, column in enumerate(columns) if column.base in ("float4", "float8")]
    sides = list((expected - actual).elements()), list((actual - expected).elements())
    return OracleDifference(*_not_close(*sides, floats, close), expected.total())


def _number(text: str) -> str:
    """Return a numeric without the zeros that do not count: 1.50 is 1.5."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _float(text: str) -> str:
    """Return one of the two zeros, which PostgreSQL holds to be equal, for either."""
    return "0" if text == "-0" else text


_READERS: Mapping[str, Callable[[str], str]] = {
    "numeric": _number,
    "float4": _float,
    "float8": _float,
}


def _not_close(
    missing: list[Row], extra: list[Row], floats: list[int], close: float
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Take out pairs of rows that differ in floats only, and there by little."""
    if not floats or close == 0.0:
        return tuple(missing), tuple(extra)
    left, unmatched = list(extra), list[Row]()
    for row in missing:
        partner = next((other for other in left if _alike(row, other, floats, close)), None)
        if partner is None:
            unmatched.append(row)
        else:
            left.remove(partner)
    return tuple(unmatched), tuple(left)


def _alike(one: Row, other: Row, floats: list[int], close: float) -> bool:
    pairs = [(place, a, b) for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    return all(
        place in floats
        and a is not None
        and b is not None
        and math.isclose(float(a), float(b), rel_tol=close)
        for place, a, b in pairs
    )


def same_bag(conn: Connection, one: str, other: str) -> OracleDifference:
    """Compare two stored tables, such as one refreshed often and one refreshed once."""
    columns = shape_of_table(conn, one)
    names = ", ".join(quoted(column.name) for column in columns)
    return difference(conn, f"SELECT {names} FROM {other}", one, columns)
