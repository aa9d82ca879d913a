"""Write the old and new versions of single rows as constants, which any session can read.

    (SELECT CAST('12.50' AS numeric) AS "m0") AS "__ms_was_0"

Not the row's own table: no other session sees what this refresh has written, and with constants
PostgreSQL's statistics can estimate how many rows lie between two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from millstream.algebra import text_io
from millstream.algebra.block import Input
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Scan
from millstream.algebra.table import BlockRows, Clock, ConstantRows, Table, quoted
from millstream.algebra.temporal_filter import Bound
from millstream.large_stack import on_large_stack
from millstream.refresh.cut import Cut
from millstream.refresh.reads.read_sql import UNCHANGED_FILTERS, FilterVersions
from millstream.store.names import BlockNames
from millstream.store.staging_columns import unstage


class SingleRowVersions:
    """Reads single rows for one refresh; without a time `since` which things changed, as they are
    and no other way.
    """

    def __init__(self, cut: Cut, names: BlockNames, since: datetime | None) -> None:
        self.conn = cut.conn
        self.names = names
        self.since = since
        self.now = cut.taken_at
        self._known: dict[Input, FilterVersions] = {}

    def filter_versions(self, one: Input) -> FilterVersions:
        """Return both versions of the temporal filters of an input.

        Call it after the blocks that they refer to.
        """
        if not one.temporal_filters:
            return UNCHANGED_FILTERS
        if one not in self._known:
            self._known[one] = self._moved(one)
        return self._known[one]

    @on_large_stack
    def _moved(self, one: Input) -> FilterVersions:
        scans = {
            scan.alias: scan
            for temporal_filters in one.temporal_filters
            for scan in temporal_filters.by
        }
        rows = [self._rows(scan, _columns(one, scan)) for scan in scans.values()]
        was = _Side("was", list(scans), [old for old, _ in rows])
        now = _Side("now", list(scans), [new for _, new in rows])
        if was.rows == now.rows:
            return FilterVersions(now.items, now.condition(one), now.condition(one))
        return FilterVersions(
            (*was.items, *now.items),
            was.condition(one),
            now.condition(one),
            self._range(one, was, now),
        )

    def _rows(self, scan: Scan, columns: Sequence[str]) -> tuple[str, str]:
        """Return the old and the new row, each as a SELECT of constants."""
        table = scan.table
        if isinstance(table, Clock):
            return _time(self.since or self.now), _time(self.now)
        if isinstance(table, ConstantRows):
            names = ", ".join(quoted(column.name) for column in table.columns)
            return (constant := f"SELECT * FROM ({table.values}) AS c ({names})"), constant
        assert isinstance(table, BlockRows)
        own = self.names.at(table.block)
        new = self._selected(
            f"SELECT {_texts(table, columns)} FROM {own.shown.as_string()} AS s", table, columns
        )
        assert new is not None
        if self.since is None:
            return new, new
        found = unstage(
            [column for column in table.columns if column.name in columns],
            own.changes,
            sql.SQL("s.__ms_action"),
        )
        images = (
            f"SELECT {_texts(table, columns)} FROM {found.as_string()} AS s WHERE __ms_action = 'D'"
        )
        return self._selected(images, table, columns) or new, new

    def _selected(self, query: str, table: Table, columns: Sequence[str]) -> str | None:
        row = self.conn.execute(query.encode()).fetchone()
        if row is None:
            return None
        values = zip(columns, row[: len(columns)], row[len(columns) :], strict=True)
        listed = [
            f"{self._constant(table, name, *value)} AS {quoted(name)}" for name, *value in values
        ]
        return f"SELECT {', '.join(listed)}"

    def _constant(self, table: Table, name: str, text: str | None, collation: str | None) -> str:
        column = table.column(name)
        assert column is not None
        value = f"CAST({sql.Literal(text).as_string(self.conn)} AS {column.type.name})"
        return f"{value} COLLATE {collation}" if collation else value

    def clock_images(self) -> str:
        """Return the old and the new row of the clock as images of a slice."""
        assert self.since is not None
        old, new = (f"SELECT '{action}' AS __ms_action, t.* FROM ({_time(at)}) AS t"
                    for action, at in (("D", self.since), ("I", self.now)))  # fmt: skip
        return f"({old} UNION ALL {new})"

    # -- the range of crossing rows ---------------------------------------------------------

    def _range(self, one: Input, was: _Side, now: _Side) -> str:
        """Return a condition that all crossing rows meet and an index supports; "" if there is
        none.
        """
        bounds = [temporal_filters.bound for temporal_filters in one.temporal_filters]
        if any(bound is None for bound in bounds):
            return ""
        pairs = [
            (bound, was.expr(bound.bound).sql, now.expr(bound.bound).sql)
            for bound in bounds
            if bound is not None
        ]
        nulls = ", ".join(f"({text}) IS NULL" for _, *texts in pairs for text in texts)
        row = self.conn.execute(
            f"SELECT {nulls} FROM {', '.join((*was.items, *now.items))}".encode()
        ).fetchone()
        assert row is not None
        known = zip(pairs, row[::2], row[1::2], strict=True)
        return " OR ".join(f"({_between(*pair, no_old, no_new)})" for pair, no_old, no_new in known)


def _time(at: datetime) -> str:
    """Return the clock's row at a time."""
    return f"SELECT CAST('{at.isoformat()}' AS timestamptz) AS now"


def _between(bound: Bound, old: str, new: str, no_old: bool, no_new: bool) -> str:
    """Return the condition for values between the old and the new bound; no row passes a comparison
    with NULL.
    """
    value, operator = f"({bound.value.sql})", bound.operator
    if no_old and no_new:
        return "false"
    if no_old or no_new:
        return f"{value} {operator} ({new if no_old else old})"
    if operator == "=":
        return f"{value} = ({old}) OR {value} = ({new})"
    return f"{value} BETWEEN least({old}, {new}) AND greatest({old}, {new})"


@dataclass(frozen=True)
class _Side:
    """One version of all single rows of an input."""

    name: str
    aliases: list[str]
    rows: list[str]

    @property
    def items(self) -> tuple[str, ...]:
        """FROM items."""
        return tuple(
            f"({row}) AS {quoted(self._alias(number))}" for number, row in enumerate(self.rows)
        )

    def condition(self, one: Input) -> str:
        """Return the conjunction of all temporal filters of an input."""
        return " AND ".join(
            f"({self.expr(temporal_filters.condition).sql})"
            for temporal_filters in one.temporal_filters
        )

    def expr(self, expression: Expr) -> Expr:
        """Return an expression over these rows."""
        numbers = {alias: number for number, alias in enumerate(self.aliases)}
        own = [ref for ref in expression.refs if ref.alias in numbers]
        return expression.substitute(
            {ref: Expr(Ref(self._alias(numbers[ref.alias]), ref.column).sql) for ref in own}
        )

    def _alias(self, number: int) -> str:
        return f"__ms_{self.name}_{number}"


def _columns(one: Input, scan: Scan) -> list[str]:
    """Return the columns of a single row that the filters refer to."""
    return sorted(
        {
            ref.column
            for temporal_filters in one.temporal_filters
            for ref in temporal_filters.over(scan.alias)
        }
    )


def _texts(table: Table, columns: Sequence[str]) -> str:
    """Return each value as text, then each collation, because a constant has none of its own."""
    found = [(quoted(name), table.column(name)) for name in columns]
    values = [
        text_io.output_sql(f"s.{name}", column.type) if column else f"s.{name}::text"
        for name, column in found
    ]
    collations = [
        f"pg_collation_for(s.{name})" if column and column.type.collation != "none" else "NULL"
        for name, column in found
    ]
    return ", ".join(values + collations)
