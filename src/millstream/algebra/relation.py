"""Relations: what a query means, as a tree of frozen nodes with one printed form.

    Aggregate  s: "o"."region" AS region; sum("o"."amount") AS total
      Filter  "o"."amount" > 0
        Scan  public.orders AS o

`explain` shows this text, logs carry it, and golden tests compare it. A node checks itself when it
is made: an expression may refer only to columns that its inputs have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.special_calls import is_table
from millstream.algebra.table import Table, quoted
from millstream.algebra.types import PgType


class Relation:
    """The base class of all nodes."""

    @property
    def columns(self) -> tuple[Ref, ...]:
        """The columns of its rows, in order."""
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Relation, ...]:
        """The nodes directly below it."""
        raise NotImplementedError

    def headline(self) -> str:
        """Return its own line of the printed form."""
        raise NotImplementedError

    def walk(self) -> Iterator[Relation]:
        """Yield the node and all nodes below it, from the top."""
        yield self
        for child in self.inputs:
            yield from child.walk()

    def tree(self, depth: int = 0) -> str:
        """Return the printed form, indented by `depth`."""
        lines = ["  " * depth + self.headline(), *(child.tree(depth + 1) for child in self.inputs)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.tree()


@dataclass(frozen=True)
class Named:
    """An expression and the name of the column that it becomes."""

    name: str
    expr: Expr

    def __str__(self) -> str:
        return f"{self.expr} AS {self.name}"


@dataclass(frozen=True)
class Expansion:
    """A set-returning function over a row of a table: PostgreSQL calls it while reading the row."""

    alias: str
    columns: tuple[str, ...]
    call: Expr
    outer: bool = False
    """Like LEFT JOIN LATERAL: a row for which the function returns none stays, null-extended."""
    numbered: bool = False
    """The query asks for WITH ORDINALITY: the last column is the ordinal."""
    on: Expr | None = None
    """With `outer`: the ON condition that the rows of the function must satisfy."""

    @property
    def number(self) -> str:
        """The column that numbers the rows of one call."""
        return Ref(self.alias, self.columns[-1] if self.numbered else NUMBER).sql

    @property
    def sql(self) -> str:
        """The join of a FROM clause that calls the function."""
        columns = self.columns if self.numbered else (*self.columns, NUMBER)
        listed = ", ".join(map(quoted, columns))
        item = f"LATERAL {self._with_number} AS {quoted(self.alias)} ({listed})"
        return (
            f"LEFT JOIN {item} ON {self.on.sql if self.on else 'true'}"
            if self.outer
            else f"CROSS JOIN {item}"
        )

    @property
    def _with_number(self) -> str:
        """The call with a number for each of its rows; XMLTABLE and JSON_TABLE have no ORDINALITY."""
        if is_table(self.call.tree):
            return f"(SELECT made.*, row_number() OVER () FROM {self.call.sql} AS made)"
        return f"{self._written} WITH ORDINALITY"

    @property
    def _written(self) -> str:
        """The call as PostgreSQL reads it: several functions in step are ROWS FROM (...)."""
        call = self.call.tree
        if not isinstance(call, exp.Anonymous) or call.name not in (ROWS_FROM, DEFINED):
            return self.call.sql
        calls = call.expressions if call.name == ROWS_FROM else [call]
        return f"ROWS FROM ({', '.join(map(_member_of_rows_from, calls))})"

    @property
    def aliases(self) -> frozenset[str]:
        """The aliases of the columns that it is called with."""
        return self.call.aliases | ((self.on.aliases - {self.alias}) if self.on else frozenset())

    def refs(self) -> frozenset[Ref]:
        """Return the columns that the call and ON mention; ON may mention columns of the function
        itself.
        """
        return self.call.refs | (self.on.refs if self.on else frozenset())

    def substitute(self, replacements: Mapping[Ref, Expr]) -> Expansion:
        """Replace columns by expressions."""
        on = self.on.substitute(replacements) if self.on else None
        return replace(self, call=self.call.substitute(replacements), on=on)

    def __str__(self) -> str:
        on = f" ON {self.on}" if self.on else ""
        return f"{self.call} AS {self.alias}{on}{' (or NULLs)' if self.outer else ''}"


NUMBER = "__ms_number"
# The name of ROWS FROM (f(), g()) while it is parsed: a call whose arguments are the functions.
ROWS_FROM = "rows from"
# The name of f(x) AS (a int) while it is parsed: a call whose arguments are f(x) and 'a int'.
DEFINED = "with columns"


def _member_of_rows_from(call: exp.Expression) -> str:
    """Return a call as ROWS FROM has it, with its list of column definitions if it has one."""
    if not isinstance(call, exp.Anonymous) or call.name != DEFINED:
        return printed(call)
    function, definitions = call.expressions
    return f"{printed(function)} AS ({definitions.name})"


@dataclass(frozen=True)
class Scan(Relation):
    """The rows of a table, each joined to the rows of the set-returning functions that are called
    with it.
    """

    table: Table
    alias: str
    expansions: tuple[Expansion, ...] = ()

    @property
    def columns(self) -> tuple[Ref, ...]:
        own = (Ref(self.alias, column.name) for column in self.table.columns)
        returned = (
            Ref(expansion.alias, name)
            for expansion in self.expansions
            for name in expansion.columns
        )
        return (*own, *returned)

    @property
    def aliases(self) -> tuple[str, ...]:
        """Its own alias, then those of its functions."""
        return (self.alias, *(expansion.alias for expansion in self.expansions))

    @property
    def single_row(self) -> bool:
        """True if it always has one row: its functions may return several for the table's one."""
        return self.table.single and not self.expansions

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return ()

    def headline(self) -> str:
        expansions = "".join(f", {expansion}" for expansion in self.expansions)
        return f"Scan  {self.table.title} AS {self.alias}{expansions}"


@dataclass(frozen=True)
class Expand(Relation):
    """Each row joined to the rows that a set-returning function returns for it."""

    input: Relation
    expansion: Expansion
    alias: str

    def __post_init__(self) -> None:
        _check_refs(self.expansion.call, self.input)
        unknown = self.expansion.aliases - {ref.alias for ref in self.input.columns}
        if unknown:
            raise ValueError(
                f"{self.expansion} refers to {', '.join(sorted(unknown))}, which its input does not have"
            )

    @property
    def columns(self) -> tuple[Ref, ...]:
        carried = (f"c{n}" for n in range(len(self.input.columns)))
        return tuple(Ref(self.alias, name) for name in (*carried, *self.made))

    @property
    def made(self) -> tuple[str, ...]:
        """The names of the function's columns, by position."""
        return tuple(f"f{n}" for n in range(len(self.expansion.columns)))

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def headline(self) -> str:
        return f"Expand  {self.alias}: {self.expansion}"


@dataclass(frozen=True)
class Filter(Relation):
    """The rows for which a predicate is true."""

    input: Relation
    predicate: Expr

    def __post_init__(self) -> None:
        _check_refs(self.predicate, self.input)

    @property
    def columns(self) -> tuple[Ref, ...]:
        return self.input.columns

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def headline(self) -> str:
        return f"Filter  {self.predicate}"


@dataclass(frozen=True)
class Project(Relation):
    """One row of outputs for each row of the input."""

    input: Relation
    outputs: tuple[Named, ...]
    alias: str
    materialized: bool = field(default=False, repr=False)
    """A WITH query that PostgreSQL computes as a whole: no condition above it is evaluated below."""

    def __post_init__(self) -> None:
        for output in self.outputs:
            _check_refs(output.expr, self.input)

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(Ref(self.alias, output.name) for output in self.outputs)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def headline(self) -> str:
        return f"Project  {self.alias}: {', '.join(map(str, self.outputs))}"


JoinKind = Literal["inner", "left", "full", "mark"]


def printed_kind(kind: JoinKind, mark: Ref | None) -> str:
    """Return the kind of a join as plans print it, with a blank behind; '' for an inner join.

    >>> printed_kind("inner", None), printed_kind("left", None)
    ('', 'left ')
    """
    if kind == "inner":
        return ""
    return f"{kind} " if mark is None else f"mark {mark} "


@dataclass(frozen=True)
class Join(Relation):
    """Pairs of rows for which the condition is true; without a condition, all pairs.

    inner   the pairs
    left    and each left row without a match, its right columns NULL
    full    and each right row without a match, its left columns NULL
    mark    each left row once, with one more column: true if it has a match
    """

    left: Relation
    right: Relation
    condition: Expr | None = None
    kind: JoinKind = "inner"
    mark: Ref | None = None

    def __post_init__(self) -> None:
        if {ref.alias for ref in self.left.columns} & {ref.alias for ref in self.right.columns}:
            raise ValueError("both sides of a join use one alias")
        if (self.kind == "mark") != (self.mark is not None):
            raise ValueError("a join has a mark exactly when its kind says so")
        if self.condition is not None:
            _check_refs(self.condition, self.left, self.right)

    @property
    def columns(self) -> tuple[Ref, ...]:
        return self.left.columns + ((self.mark,) if self.mark else self.right.columns)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    def headline(self) -> str:
        return f"Join  {printed_kind(self.kind, self.mark)}{self.condition or '(all pairs)'}"


@dataclass(frozen=True)
class UnionAll(Relation):
    """The rows of all inputs; duplicates stay."""

    parts: tuple[Relation, ...]
    names: tuple[str, ...]
    types: tuple[PgType, ...] = field(repr=False)
    alias: str = "u"
    grouping_sets: bool = field(default=False, repr=False)
    """The parts are the grouping sets of one GROUP BY."""

    def __post_init__(self) -> None:
        if any(len(part.columns) != len(self.names) for part in self.parts):
            raise ValueError("the parts of a union differ in width")

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(Ref(self.alias, name) for name in self.names)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return self.parts

    def headline(self) -> str:
        return f"UnionAll  {self.alias}: {', '.join(self.names)}"


@dataclass(frozen=True)
class Call:
    """An aggregate function and its argument, which is None for count(*).

    If the call has more than that (DISTINCT, ORDER BY, several arguments), `text` is the whole
    call.
    """

    function: str
    argument: Expr | None
    filter: Expr | None = None
    text: Expr | None = None

    def parts(self) -> tuple[Expr, ...]:
        """Return the expressions of the call."""
        return tuple(part for part in (self.argument, self.filter, self.text) if part is not None)

    def substitute(self, replacements: Mapping[Ref, Expr]) -> Call:
        """Replace columns by expressions."""

        def replaced(part: Expr | None) -> Expr | None:
            return part.substitute(replacements) if part else None

        return Call(
            self.function, replaced(self.argument), replaced(self.filter), replaced(self.text)
        )

    def __str__(self) -> str:
        if self.text is not None:
            return str(self.text)
        where = f" FILTER (WHERE {self.filter})" if self.filter else ""
        return f"{self.function}({self.argument or '*'}){where}"


@dataclass(frozen=True)
class Measure:
    """A named aggregate of a group."""

    name: str
    call: Call

    def __str__(self) -> str:
        return f"{self.call} AS {self.name}"


@dataclass(frozen=True)
class Aggregate(Relation):
    """One row per group; without keys, one row for all rows."""

    input: Relation
    keys: tuple[Named, ...]
    measures: tuple[Measure, ...]
    alias: str

    def __post_init__(self) -> None:
        for key in self.keys:
            _check_refs(key.expr, self.input)
        for measure in self.measures:
            for part in measure.call.parts():
                _check_refs(part, self.input)

    def refs(self) -> tuple[Ref, ...]:
        """Return the columns of its input that it uses, each once."""
        arguments = (part for measure in self.measures for part in measure.call.parts())
        parts = [*(key.expr for key in self.keys), *arguments]
        return tuple(dict.fromkeys(ref for part in parts for ref in sorted(part.refs)))

    def over(self, input: Relation, replacements: Mapping[Ref, Expr]) -> Aggregate:
        """Return this aggregate over other rows; `replacements` maps the old columns to expressions
        over the new.
        """
        keys = tuple(Named(key.name, key.expr.substitute(replacements)) for key in self.keys)
        measures = tuple(
            Measure(measure.name, measure.call.substitute(replacements))
            for measure in self.measures
        )
        return Aggregate(input, keys, measures, self.alias)

    @property
    def columns(self) -> tuple[Ref, ...]:
        names = [key.name for key in self.keys] + [measure.name for measure in self.measures]
        return tuple(Ref(self.alias, name) for name in names)

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def headline(self) -> str:
        keys = ", ".join(map(str, self.keys)) or "(everything)"
        return f"Aggregate  {self.alias}: {keys}; {', '.join(map(str, self.measures))}"


@dataclass(frozen=True)
class Window(Relation):
    """Each row with the values of window functions, which all have the partition keys `keys`."""

    input: Relation
    keys: tuple[Expr, ...]
    calls: tuple[Named, ...]
    alias: str

    def __post_init__(self) -> None:
        for expression in (*self.keys, *(call.expr for call in self.calls)):
            _check_refs(expression, self.input)

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(Ref(self.alias, name) for name in self.names)

    def over(self, input: Relation, replacements: Mapping[Ref, Expr]) -> Window:
        """Return this window over other rows; `replacements` maps the old columns to expressions
        over the new.
        """
        calls = tuple(Named(call.name, call.expr.substitute(replacements)) for call in self.calls)
        return Window(
            input, tuple(key.substitute(replacements) for key in self.keys), calls, self.alias
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns: c0, c1, ... for the input's, then those of the calls."""
        return (
            *(f"c{n}" for n in range(len(self.input.columns))),
            *(call.name for call in self.calls),
        )

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def headline(self) -> str:
        keys = ", ".join(map(str, self.keys)) or "(everything)"
        return f"Window  {self.alias}: by {keys}; {', '.join(map(str, self.calls))}"


@dataclass(frozen=True)
class Recursion(Relation):
    """The rows of `base`, the rows that `step` derives from these, and so on until `step` derives
    none.

    In `step`, a scan of the recursion itself reads the rows derived last. With `each_once` (UNION)
    a row that exists already is not derived again; otherwise (UNION ALL) it is, as often as it is
    derived.
    """

    name: str
    base: Relation
    step: Relation
    each_once: bool
    depth: int
    """The number of recursions around it, which identifies the scans of it in its step."""
    text: str = field(repr=False)
    """A query that returns its rows, from which PostgreSQL derives the types and collations of its
    columns.
    """
    alias: str

    def __post_init__(self) -> None:
        if len(self.base.columns) != len(self.step.columns):
            raise ValueError("the terms of a recursion differ in width")

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(Ref(self.alias, f"c{n}") for n in range(len(self.base.columns)))

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.base, self.step)

    def headline(self) -> str:
        return (
            f"Recursion  {self.alias}: {self.name} by {'UNION' if self.each_once else 'UNION ALL'}"
        )


def replace_scans(relation: Relation, swap: Callable[[Scan], Scan]) -> Relation:
    """Replace each scan in a relation without stateful operators."""
    if isinstance(relation, Scan):
        return swap(relation)
    if isinstance(relation, Join):
        return replace(
            relation,
            left=replace_scans(relation.left, swap),
            right=replace_scans(relation.right, swap),
        )
    if isinstance(relation, UnionAll):
        return replace(relation, parts=tuple(replace_scans(part, swap) for part in relation.parts))
    assert isinstance(relation, Filter | Project | Expand), f"unexpected {type(relation).__name__}"
    return replace(relation, input=replace_scans(relation.input, swap))


@dataclass(frozen=True)
class Order:
    """An item of ORDER BY; `how` is its direction: `DESC NULLS LAST`."""

    expr: Expr
    how: str = ""

    @property
    def sql(self) -> str:
        return f"{self.expr.sql} {self.how}".strip()

    def __str__(self) -> str:
        return self.sql


@dataclass(frozen=True)
class Limit(Relation):
    """The first rows in an order; all columns break ties."""

    input: Relation
    order: tuple[Order, ...]
    limit: str
    """`LIMIT 10 OFFSET 5`, as PostgreSQL reads it."""
    alias: str

    def __post_init__(self) -> None:
        for item in self.order:
            _check_refs(item.expr, self.input)

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(Ref(self.alias, f"c{n}") for n in range(len(self.input.columns)))

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def headline(self) -> str:
        return f"Limit  {self.alias}: by {', '.join(map(str, self.order)) or '(all columns)'} {self.limit}"


def _check_refs(expression: Expr, *inputs: Relation) -> None:
    """Raise ValueError if an expression refers to a column that no input has."""
    known = {ref for relation in inputs for ref in relation.columns}
    unknown = expression.refs - known
    if unknown:
        raise ValueError(
            f"{expression} refers to {', '.join(map(str, sorted(unknown)))}, which its input does not have"
        )
