"""Random tables and random changes to them, each from a seed.

Values come from small sets, so that rows meet, repeat and cancel; NULL is one of them everywhere.
In a *cased* schema every table has a column `cid`, the case: queries join and group by it, so that
one stream table holds as many independent small databases as there are cases, and one refresh tries
them all.

    t1  cid, id, j, h, g, ...    keyed by (cid, id)          j, h   to join by, int4 and int2/int8
    t2  cid, id, j, h, g, ...    without key, with equal rows    g      to group by, a text

`Changes.batch` changes all tables: rows that come, go, change one column or many, change their
keys, move to another case, come and go at once, go and come back; whole cases that empty, in all
tables at the same time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, TypeAlias

from millstream.postgres.connection import Connection

Family = Literal["int", "numeric", "float", "text", "bool", "date", "time", "other"]

NULL_SHARE = 0.15


@dataclass(frozen=True)
class ColumnKind:
    """A type, and the values of it that are used."""

    name: str
    type: str
    family: Family
    values: tuple[str, ...]


_U = "00000000-0000-4000-8000-00000000000"

KINDS = {
    kind.name: kind
    for kind in (
        ColumnKind("int2", "smallint", "int", ("-1", "0", "1", "2", "3")),
        ColumnKind("int4", "integer", "int", ("-5", "0", "1", "2", "3", "70000")),
        ColumnKind("int8", "bigint", "int", ("0", "1", "2", "3", "10000000000")),
        ColumnKind("money2", "numeric(12,2)", "numeric", ("0", "1", "2.50", "-0.75", "1000.10", "0.01", "NaN")),
        ColumnKind("rate4", "numeric(8,4)", "numeric", ("1", "2.5", "0.0001", "-0.75", "33.3333")),
        ColumnKind(
            "numeric", "numeric", "numeric",
            ("1", "1.0", "1.00", "2.5", "0.1", "0.000001", "12345.678900", "-3", "1e40", "-1e-50", "9e19", "NaN",
             "Infinity", "-Infinity"),
        ),
        ColumnKind("float8", "float8", "float", ("0", "-0", "0.5", "1", "2.25", "-1.5", "1024", "NaN", "-Infinity")),
        ColumnKind(
            "text", "text", "text",
            ("", "a", "b", "A", "é ", "it's, \"so\"?", "two\r\nlines", "\\N", "\\.", "NULL"),
        ),
        ColumnKind("ctext", 'text COLLATE "C"', "text", ("", "a", "b", "A", "Ω", "b b")),
        ColumnKind("varchar", "varchar(6)", "text", ("", "a", "b", "abcdef", "é")),
        ColumnKind("char4", "char(4)", "other", ("", "a", "ab", "abcd", " a")),
        # Equal values have the same blanks: which of them a group shows is then no choice.
        ColumnKind("bpchar", "bpchar", "other", ("", "a ", "b   ", "ab", " a  ")),
        ColumnKind("bool", "boolean", "bool", ("t", "f")),
        ColumnKind("date", "date", "date", ("2020-01-01", "1999-12-31", "2024-02-29", "infinity", "-infinity")),
        ColumnKind("timestamp", "timestamp", "time", ("2020-01-01 00:00:00", "2020-06-01 12:34:56.789012", "infinity")),
        ColumnKind(
            "timestamptz", "timestamptz", "time",
            ("2020-01-01 00:00:00+00", "2020-06-01 12:34:56.789012+02", "1969-12-31 23:59:59.999999+00", "-infinity"),
        ),
        ColumnKind("uuid", "uuid", "other", (_U + "1", _U + "2", _U + "3")),
        ColumnKind("jsonb", "jsonb", "other", ("{}", '{"a": [1, null]}', '"x"')),
        ColumnKind("ints", "integer[]", "other", ("{}", "{1,2}", "{NULL}")),
    )
}  # fmt: skip
# For strays: values at the ends of their types, and one that queries divide by the distance from.
_ENDS = {
    "int2": ("-32768", "32767"), "int4": ("-2147483648", "2147483647", "777"),
    "int8": ("-9223372036854775808", "9223372036854775807", "777"), "money2": ("777", "9999999999.99"),
    "rate4": ("777", "9999.9999"), "date": ("5874897-12-31", "4713-01-01 BC"),
}  # fmt: skip
# Numbers that Spark's decimals do not have, and some whose sum has more digits than they.
_EXTREMES = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e200",
    "-1e200",
    "1e-100",
    "-1e-100",
    "9e19",
    "-9e19",
    "123456789.5",
)
# What can stand in `=`, in GROUP BY and in min() of PostgreSQL and of Spark.
COMPARED = frozenset(KINDS) - {"jsonb"}


@dataclass(frozen=True)
class RandomColumn:
    """A column and what is put into it."""

    name: str
    kind: ColumnKind
    nullable: bool = True


@dataclass(frozen=True)
class RandomTable:
    """A table as it is created."""

    name: str
    columns: tuple[RandomColumn, ...]
    key: tuple[str, ...] = ()
    """Empty: rows may be equal."""

    @property
    def cased(self) -> bool:
        return self.columns[0].name == "cid"

    def ddl(self) -> list[str]:
        """Return the statements that create it, with the indexes that lookups use."""
        columns = [
            f"{c.name} {c.kind.type}{'' if c.nullable else ' NOT NULL'}" for c in self.columns
        ]
        made = [f"CREATE TABLE {self.name} ({', '.join(columns)})"]
        if self.key:
            made.append(f"CREATE UNIQUE INDEX ON {self.name} ({', '.join(self.key)})")
        return [*made, f"CREATE INDEX ON {self.name} ({'cid, ' if self.cased else ''}j)"]


def random_tables(dice: random.Random, *, cased: bool, number: int = 4) -> tuple[RandomTable, ...]:
    """Return some tables; about every third has no key."""
    return tuple(_random_table(f"t{n + 1}", dice, cased=cased) for n in range(number))


def _random_table(name: str, dice: random.Random, *, cased: bool) -> RandomTable:
    case = [RandomColumn("cid", KINDS["int4"], nullable=False)] if cased else []
    fixed = [
        RandomColumn("id", KINDS["int4"], nullable=False),
        RandomColumn("j", KINDS["int4"]),
        RandomColumn("h", KINDS[dice.choice(["int2", "int8"])]),
        RandomColumn("g", KINDS["text"]),
    ]
    more = [RandomColumn(f"v_{kind}", KINDS[kind]) for kind in dice.sample(sorted(KINDS), 8)]
    key = (("cid", "id") if cased else ("id",)) if dice.random() < 0.67 else ()
    return RandomTable(name, (*case, *fixed, *more), key)


# -- values ----------------------------------------------------------------------------------

Values: TypeAlias = "list[str | None]"


def random_value(column: RandomColumn, dice: random.Random) -> str | None:
    """Return one of the column's values, as text."""
    if column.nullable and dice.random() < NULL_SHARE:
        return None
    return dice.choice(column.kind.values)


@dataclass
class RandomChanges:
    """Fills tables and changes them; all of it decided by the dice."""

    conn: Connection
    tables: Sequence[RandomTable]
    dice: random.Random
    cases: int = 1
    touched: set[int] = field(default_factory=set)
    """The cases changed since it was last emptied; without cases, 1."""
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ids = count(1)

    def create(self) -> None:
        """Create the tables."""
        for table in self.tables:
            for statement in table.ddl():
                self.conn.execute(statement.encode())

    def fill(self, rows_per_case: int) -> None:
        """Put rows in; some cases get none in some tables, and sometimes a whole table gets none."""
        empty = self.dice.choice(self.tables) if self.dice.random() < 0.15 else None
        for table in self.tables:
            if table is not empty:
                self._insert(table, [self._row(table) for _ in range(rows_per_case * self.cases)])
            if not table.key:
                self._repeat(table)
            self.conn.execute(f"ANALYZE {table.name}".encode())
        self.touched.clear()

    def batch(self) -> set[int]:
        """Change every table in several ways, in one transaction or in many; the cases that
        changed.
        """
        self.touched.clear()
        together = self.dice.random() < 0.5
        with self._transaction(together):
            for table in self.tables:
                self._insert(table, [self._row(table)])
            for _ in range(self.dice.randint(2, 3)):
                for table in self.dice.sample(list(self.tables), len(self.tables)):
                    with self._transaction(not together):
                        self._change(table)
            if self.dice.random() < 0.5:
                self._empty_cases()
        return set(self.touched)

    def strays(self) -> None:
        """Add rows to every cased table, and take others away, that no row of another table joins
        by case.
        """
        for number, table in enumerate(self.tables, 1):
            rows = [self._row(table) for _ in range(3)]
            for row in rows:
                for place, column in enumerate(table.columns):
                    if column.name != "id" and column.kind.name in _ENDS:
                        row[place] = self.dice.choice(_ENDS[column.kind.name])
                row[0] = str(-number)
            self._run(f"DELETE FROM {table.name} WHERE cid = {-number} AND j <> 777", table)
            # The rows of one case become strays.
            case = f"SELECT cid FROM {table.name} WHERE cid > 0 ORDER BY cid LIMIT 1"
            self._run(
                f"UPDATE {table.name} SET cid = {-number}, j = 777 WHERE cid = ({case})", table
            )
            self._insert(table, rows)

    def extremes(self) -> None:
        """Give rows of every table numbers that Spark's decimals do not have."""
        for table in self.tables:
            for column in (column for column in table.columns if column.kind.family == "numeric"):
                possible = _EXTREMES if column.kind.name == "numeric" else ("NaN", "0.5", "777")
                for value in possible:
                    changed = f"UPDATE {table.name} SET {column.name} = '{value}' WHERE ctid = ANY(%s::tid[])"
                    self._run(changed, table, self._sample(table))

    def _transaction(self, wanted: bool) -> AbstractContextManager[Any]:
        return self.conn.transaction() if wanted else nullcontext()

    def _change(self, table: RandomTable) -> None:
        name = self.dice.choice([*CHANGES, *([] if table.key else ["repeat"])])
        self.log.append(f"{name} {table.name}")
        {**CHANGES, "repeat": RandomChanges._repeat}[name](self, table)

    # -- what can happen ---------------------------------------------------------------------

    def _come(self, table: RandomTable) -> None:
        self._insert(table, [self._row(table) for _ in range(self._some(table))])

    def _repeat(self, table: RandomTable) -> None:
        columns = ", ".join(column.name for column in table.columns)
        self._run(
            f"INSERT INTO {table.name} SELECT {columns} FROM {table.name} WHERE ctid = ANY(%s::tid[])",
            table, self._sample(table),
        )  # fmt: skip

    def _go(self, table: RandomTable) -> None:
        self._run(
            f"DELETE FROM {table.name} WHERE ctid = ANY(%s::tid[])", table, self._sample(table)
        )

    def _change_columns(self, table: RandomTable) -> None:
        free = [column for column in table.columns if column.name not in ("cid", "id")]
        self._update(table, self.dice.sample(free, self.dice.randint(1, 3)), self._sample(table))

    def _change_join_and_value(self, table: RandomTable) -> None:
        free = [column for column in table.columns if column.name.startswith("v_")]
        joined = [column for column in table.columns if column.name in ("j", "h")]
        self._update(table, [*joined, *self.dice.sample(free, 2)], self._sample(table))

    def _change_key(self, table: RandomTable) -> None:
        changed = [column for column in table.columns if column.name in ("id", "j")]
        self._update(table, changed, self._sample(table))

    def _move(self, table: RandomTable) -> None:
        """Move some rows to another case, under new ids."""
        changed = [column for column in table.columns if column.name in ("cid", "id")]
        self._update(table, changed, self._sample(table))

    def _flip_null(self, table: RandomTable) -> None:
        self._run(
            f"UPDATE {table.name} SET g = CASE WHEN g IS NULL THEN 'a' END WHERE ctid = ANY(%s::tid[])",
            table, self._sample(table),
        )  # fmt: skip

    def _come_and_go(self, table: RandomTable) -> None:
        rows = [self._row(table) for _ in range(self._some(table))]
        at = self._insert(table, rows)
        self._run(f"DELETE FROM {table.name} WHERE ctid = ANY(%s::tid[])", table, at)

    def _go_and_come(self, table: RandomTable) -> None:
        """Deleted, and inserted again as they were."""
        at = self._sample(table)
        with self.conn.transaction():
            self.conn.execute(
                f"CREATE TEMPORARY TABLE kept AS TABLE {table.name} WITH NO DATA".encode()
            )
            keep = f"INSERT INTO kept SELECT * FROM {table.name} WHERE ctid = ANY(%s::tid[])"
            self.conn.execute(keep.encode(), (at,))
            self._run(f"DELETE FROM {table.name} WHERE ctid = ANY(%s::tid[])", table, at)
            self._run(f"INSERT INTO {table.name} TABLE kept", table)
            self.conn.execute("DROP TABLE kept")

    def _there_and_back(self, table: RandomTable) -> None:
        at = self._sample(table)
        for sign in ("+", "-"):
            at = self._run(
                f"UPDATE {table.name} SET j = j {sign} 1 WHERE ctid = ANY(%s::tid[])", table, at
            )

    def _empty_cases(self) -> None:
        """Delete all rows of a case, in all tables: both sides of every join go at once."""
        cases = self.dice.sample(range(1, self.cases + 1), max(1, self.cases // 20))
        for table in self.tables:
            where = " WHERE cid = ANY(%s)" if table.cased else " WHERE j = ANY(%s)"
            self.log.append(f"empty {table.name}")
            self._run(f"DELETE FROM {table.name}{where}", table, cases)

    # -- steps -------------------------------------------------------------------------------

    def _some(self, table: RandomTable) -> int:
        return self.dice.randint(1, max(2, self.cases // 2))

    def _row(self, table: RandomTable) -> Values:
        return [self._value(table, column) for column in table.columns]

    def _value(self, table: RandomTable, column: RandomColumn) -> str | None:
        if column.name == "cid":
            return str(self.dice.randint(1, self.cases))
        if column.name == "id":
            return str(next(self._ids)) if table.key else str(self.dice.randint(1, 5))
        return random_value(column, self.dice)

    def _sample(self, table: RandomTable) -> list[str]:
        """Return the places of some rows, in an order that depends on their content only."""
        cases = " WHERE cid > 0" if table.cased else ""
        found = f"SELECT ctid::text FROM {table.name} AS t{cases} ORDER BY t::text"
        rows = self.conn.execute(found.encode()).fetchall()
        return (
            [self.dice.choice(rows)[0]]
            if len(rows) < 6 and rows
            else self._share([row[0] for row in rows])
        )

    def _share(self, rows: list[str]) -> list[str]:
        return self.dice.sample(rows, int(len(rows) * self.dice.uniform(0.02, 0.12)))

    def _insert(self, table: RandomTable, rows: Sequence[Values]) -> list[str]:
        columns = [column.name for column in table.columns]
        values = ", ".join(f"v.{column.name}::{_type(column)}" for column in table.columns)
        arrays = ", ".join(["%s::text[]"] * len(columns))
        return self._run(
            f"INSERT INTO {table.name} SELECT {values} FROM unnest({arrays}) AS v ({', '.join(columns)})",
            table, *([row[place] for row in rows] for place in range(len(columns))),
        )  # fmt: skip

    def _update(self, table: RandomTable, columns: Sequence[RandomColumn], at: list[str]) -> None:
        names = [column.name for column in columns]
        sets = ", ".join(f"{column.name} = v.{column.name}::{_type(column)}" for column in columns)
        arrays = ", ".join(["%s::text[]"] * (len(names) + 1))
        new = [[self._value(table, column) for _ in at] for column in columns]
        self._touch(table, at)
        self._run(
            f"UPDATE {table.name} SET {sets} FROM unnest({arrays}) AS v (at, {', '.join(names)}) "
            f"WHERE {table.name}.ctid = v.at::tid",
            table, at, *new,
        )  # fmt: skip

    def _touch(self, table: RandomTable, at: list[str]) -> None:
        if table.cased:
            query = f"SELECT cid FROM {table.name} WHERE ctid = ANY(%s::tid[])"
            self.touched |= {row[0] for row in self.conn.execute(query.encode(), (at,))}

    # Parameters are arrays of whatever the statement takes.
    def _run(self, statement: str, table: RandomTable, *parameters: Any) -> list[str]:
        """Run a statement that changes rows; where the new rows stand."""
        case = f"{table.name}.cid" if table.cased else "1"
        told = f" RETURNING {case}, {table.name}.ctid::text"
        rows = self.conn.execute((statement + told).encode(), parameters).fetchall()
        self.touched |= {row[0] for row in rows if row[0] > 0}
        return [row[1] for row in rows]


def _type(column: RandomColumn) -> str:
    return column.kind.type.split(" COLLATE")[0]


CHANGES: dict[str, Callable[[RandomChanges, RandomTable], None]] = {
    "come": RandomChanges._come,
    "go": RandomChanges._go,
    "change columns": RandomChanges._change_columns,
    "change join and value": RandomChanges._change_join_and_value,
    "change key": RandomChanges._change_key,
    "move": RandomChanges._move,
    "flip NULL": RandomChanges._flip_null,
    "come and go": RandomChanges._come_and_go,
    "go and come": RandomChanges._go_and_come,
    "there and back": RandomChanges._there_and_back,
}
