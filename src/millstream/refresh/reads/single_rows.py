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

from millstream.algebra.block import Input
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.algebra.table import BlockRows, Clock, ConstantRows, Table
from millstream.algebra.temporal_filter import Bound
from millstream.algebra.types import Column
from millstream.large_stack import on_large_stack
from millstream.postgres.composed import (
    Printed,
    aliased,
    all_of,
    in_parentheses,
    listed,
    one_of,
)
from millstream.refresh.cut import Cut
from millstream.refresh.reads.read_sql import UNCHANGED_FILTERS, FilterVersions
from millstream.store.names import BlockNames
from millstream.store.staging_columns import text_of, unstage


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

    def _rows(self, scan: Scan, columns: Sequence[str]) -> tuple[sql.Composable, sql.Composable]:
        """Return the old and the new row, each as a SELECT of constants."""
        table = scan.table
        if isinstance(table, Clock):
            return _time(self.since or self.now), _time(self.now)
        if isinstance(table, ConstantRows):
            return (constant := _constant_row(table)), constant
        assert isinstance(table, BlockRows)
        own = self.names.at(table.block)
        texts = _texts(table, columns)
        shown = sql.SQL("SELECT {} FROM {} AS s").format(texts, own.shown)
        new = self._selected(shown, table, columns)
        assert new is not None
        if self.since is None:
            return new, new
        read = [column for column in table.columns if column.name in columns]
        changes = unstage(read, own.changes, sql.SQL("s.__ms_action"))
        images = sql.SQL("SELECT {} FROM {} AS s WHERE __ms_action = 'D'").format(texts, changes)
        return self._selected(images, table, columns) or new, new

    def _selected(
        self, query: sql.Composed, table: Table, columns: Sequence[str]
    ) -> sql.Composed | None:
        row = self.conn.execute(query).fetchone()
        if row is None:
            return None
        values = zip(columns, row[: len(columns)], row[len(columns) :], strict=True)
        constants = [aliased(_constant(table, name, *value), name) for name, *value in values]
        return sql.SQL("SELECT {}").format(listed(constants))

    def clock_images(self) -> sql.Composed:
        """Return the old and the new row of the clock as images of a slice."""
        assert self.since is not None
        return sql.SQL(
            "(SELECT 'D' AS __ms_action, t.* FROM ({old}) AS t UNION ALL "
            "SELECT 'I' AS __ms_action, t.* FROM ({new}) AS t)"
        ).format(old=_time(self.since), new=_time(self.now))

    # -- the range of crossing rows ---------------------------------------------------------

    def _range(self, one: Input, was: _Side, now: _Side) -> sql.Composed | None:
        """Return a condition that all crossing rows meet and an index supports; None if there is
        none.
        """
        bounds = [temporal_filters.bound for temporal_filters in one.temporal_filters]
        if any(bound is None for bound in bounds):
            return None
        pairs = [
            (bound, was.printed(bound.bound), now.printed(bound.bound))
            for bound in bounds
            if bound is not None
        ]
        is_null = sql.SQL("({}) IS NULL")
        query = sql.SQL("SELECT {} FROM {}").format(
            listed(is_null.format(value) for _, *values in pairs for value in values),
            listed([*was.items, *now.items]),
        )
        row = self.conn.execute(query).fetchone()
        assert row is not None
        known = zip(pairs, row[::2], row[1::2], strict=True)
        return one_of(
            in_parentheses(_between(*pair, no_old, no_new)) for pair, no_old, no_new in known
        )


def _constant_row(table: ConstantRows) -> sql.Composed:
    """Return the one row of VALUES."""
    return sql.SQL("SELECT * FROM ({values}) AS c ({columns})").format(
        values=Printed(table.values),
        columns=listed(sql.Identifier(column.name) for column in table.columns),
    )


def _constant(table: Table, name: str, text: str | None, collation: str | None) -> sql.Composable:
    """Return a value of a column as a constant of its type and collation."""
    column = table.column(name)
    assert column is not None
    value = sql.SQL("CAST({} AS {})").format(sql.Literal(text), Printed(column.type.name))
    return sql.SQL("{} COLLATE {}").format(value, Printed(collation)) if collation else value


def _time(at: datetime) -> sql.Composed:
    """Return the clock's row at a time."""
    return sql.SQL("SELECT CAST({} AS timestamptz) AS now").format(at.isoformat())


def _between(
    bound: Bound, old: sql.Composable, new: sql.Composable, no_old: bool, no_new: bool
) -> sql.Composable:
    """Return the condition for values between the old and the new bound; no row passes a comparison
    with NULL.
    """
    value = in_parentheses(Printed(bound.value.sql))
    if no_old and no_new:
        return sql.SQL("false")
    if no_old or no_new:
        compared = sql.SQL("{} {} ({})")
        return compared.format(value, Printed(bound.operator), new if no_old else old)
    if bound.operator == "=":
        return sql.SQL("{value} = ({old}) OR {value} = ({new})").format(
            value=value, old=old, new=new
        )
    return sql.SQL("{value} BETWEEN least({old}, {new}) AND greatest({old}, {new})").format(
        value=value, old=old, new=new
    )


@dataclass(frozen=True)
class _Side:
    """One version of all single rows of an input."""

    name: str
    aliases: list[str]
    rows: list[sql.Composable]

    @property
    def items(self) -> tuple[sql.Composable, ...]:
        """FROM items."""
        return tuple(
            aliased(in_parentheses(row), self._alias(number))
            for number, row in enumerate(self.rows)
        )

    def condition(self, one: Input) -> sql.Composed:
        """Return the conjunction of all temporal filters of an input."""
        return all_of(
            in_parentheses(self.printed(temporal_filter.condition))
            for temporal_filter in one.temporal_filters
        )

    def printed(self, expression: Expr) -> Printed:
        """Return an expression over these rows."""
        numbers = {alias: number for number, alias in enumerate(self.aliases)}
        own = [ref for ref in expression.refs if ref.alias in numbers]
        replaced = {ref: Expr.ref(self._alias(numbers[ref.alias]), ref.column) for ref in own}
        return Printed(expression.substitute(replaced).sql)

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


def _texts(table: Table, columns: Sequence[str]) -> sql.Composed:
    """Return each value as text, then each collation, because a constant has none of its own."""
    found = [(sql.Identifier("s", name), table.column(name)) for name in columns]
    texts = [_text(value, column) for value, column in found]
    return listed([*texts, *(_collation(value, column) for value, column in found)])


def _text(value: sql.Identifier, column: Column | None) -> sql.Composable:
    if column is None:
        return sql.SQL("{}::text").format(value)
    return text_of(value, column.type)


def _collation(value: sql.Identifier, column: Column | None) -> sql.Composable:
    if column is None or column.type.collation == "none":
        return sql.SQL("NULL")
    return sql.SQL("pg_collation_for({})").format(value)
