"""Relations: what a query means, as a tree of frozen nodes with one printed form.

    Aggregate  s: "o"."region" AS region; sum("o"."amount") AS total
      Filter  "o"."amount" > 0
        Scan  public.orders AS o

That text is what `explain` shows, what logs carry and what golden tests compare. A node checks
itself at birth: an expression may refer only to columns that its inputs have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.table import Table, quoted
from millstream.algebra.types import PgType


class Relation:
    """The base of all nodes."""

    @property
    def columns(self) -> tuple[Ref, ...]:
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Relation, ...]:
        raise NotImplementedError

    def headline(self) -> str:
        raise NotImplementedError

    def walk(self) -> Iterator[Relation]:
        """The node and all below it, from the top."""
        yield self
        for child in self.inputs:
            yield from child.walk()

    def tree(self, depth: int = 0) -> str:
        """The printed form."""
        lines = ["  " * depth + self.headline(), *(child.tree(depth + 1) for child in self.inputs)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.tree()


@dataclass(frozen=True)
class Named:
    """An expression with the name it is known by from here on."""

    name: str
    expr: Expr

    def __str__(self) -> str:
        return f"{self.expr} AS {self.name}"


@dataclass(frozen=True)
class Expansion:
    """A function that makes several rows of one: PostgreSQL calls it while reading the row."""

    alias: str
    columns: tuple[str, ...]
    call: Expr
    outer: bool = False
    """A row of which it makes none is kept, with NULLs."""
    numbered: bool = False
    """The last column is WITH ORDINALITY's."""
    on: Expr | None = None
    """Which of the rows it makes are kept, where one of which none is kept has NULLs."""

    @property
    def number(self) -> str:
        """The column that tells its rows apart."""
        return Ref(self.alias, self.columns[-1] if self.numbered else NUMBER).sql

    @property
    def sql(self) -> str:
        columns = self.columns if self.numbered else (*self.columns, NUMBER)
        listed = ", ".join(map(quoted, columns))
        call = self.call.sql.replace(f"{ROWS_FROM}(", "ROWS FROM (", 1)
        item = f"LATERAL {call} WITH ORDINALITY AS {quoted(self.alias)} ({listed})"
        return f"LEFT JOIN {item} ON {self.on.sql if self.on else 'true'}" if self.outer else f"CROSS JOIN {item}"

    @property
    def aliases(self) -> frozenset[str]:
        """What it is over."""
        return self.call.aliases | ((self.on.aliases - {self.alias}) if self.on else frozenset())

    def refs(self) -> frozenset[Ref]:
        """The columns it is over, its own besides."""
        return self.call.refs | (self.on.refs if self.on else frozenset())

    def substitute(self, replacements: Mapping[Ref, Expr]) -> Expansion:
        """The same over other columns."""
        on = self.on.substitute(replacements) if self.on else None
        return replace(self, call=self.call.substitute(replacements), on=on)

    def __str__(self) -> str:
        on = f" ON {self.on}" if self.on else ""
        return f"{self.call} AS {self.alias}{on}{' (or NULLs)' if self.outer else ''}"


NUMBER = "__ms_number"
# Several functions in step, written as if they were arguments of one.
ROWS_FROM = '"rows from"'


@dataclass(frozen=True)
class Scan(Relation):
    """All rows of a table; of each, those that functions make of it."""

    table: Table
    alias: str
    expansions: tuple[Expansion, ...] = ()

    @property
    def columns(self) -> tuple[Ref, ...]:
        made = (Ref(one.alias, name) for one in self.expansions for name in one.columns)
        return (*(Ref(self.alias, column.name) for column in self.table.columns), *made)

    @property
    def aliases(self) -> tuple[str, ...]:
        """Its own, and those of what functions make of its rows."""
        return (self.alias, *(one.alias for one in self.expansions))

    def item(self, relation: str) -> str:
        """The FROM item that reads it from a relation."""
        return " ".join([f"{relation} AS {quoted(self.alias)}", *(one.sql for one in self.expansions)])

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return ()

    def headline(self) -> str:
        made = "".join(f", {one}" for one in self.expansions)
        return f"Scan  {self.table.title} AS {self.alias}{made}"


@dataclass(frozen=True)
class Expand(Relation):
    """The rows that a function makes of each row, beside its columns."""

    input: Relation
    expansion: Expansion
    alias: str

    def __post_init__(self) -> None:
        _check_refs(self.expansion.call, self.input)
        unknown = self.expansion.aliases - {ref.alias for ref in self.input.columns}
        if unknown:
            raise ValueError(f"{self.expansion} refers to {', '.join(sorted(unknown))}, which its input does not have")

    @property
    def columns(self) -> tuple[Ref, ...]:
        carried = (f"c{n}" for n in range(len(self.input.columns)))
        return tuple(Ref(self.alias, name) for name in (*carried, *self.made))

    @property
    def made(self) -> tuple[str, ...]:
        """The names of what the function makes, by position."""
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
    """Each row turned into another."""

    input: Relation
    outputs: tuple[Named, ...]
    alias: str

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


@dataclass(frozen=True)
class Join(Relation):
    """Pairs of rows for which the condition is true; without a condition, all pairs.

    inner   the pairs
    left    and each left row that meets nothing, its right columns NULL
    full    and each right row that meets nothing, its left columns NULL
    mark    each left row once, with one more column that tells whether it meets anything
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
        what = "" if self.kind == "inner" else f"{self.kind} " if self.mark is None else f"mark {self.mark} "
        return f"Join  {what}{self.condition or '(all pairs)'}"


@dataclass(frozen=True)
class UnionAll(Relation):
    """The rows of all inputs, duplicates kept."""

    parts: tuple[Relation, ...]
    names: tuple[str, ...]
    types: tuple[PgType, ...] = field(repr=False)
    alias: str = "u"

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
    """An aggregate function and what it is applied to; `argument` is None for count(*).

    Where that is not all (DISTINCT, ORDER BY, several arguments), `text` is the whole call.
    """

    function: str
    argument: Expr | None
    filter: Expr | None = None
    text: Expr | None = None

    def parts(self) -> tuple[Expr, ...]:
        """The expressions it is made of."""
        return tuple(part for part in (self.argument, self.filter, self.text) if part is not None)

    def substitute(self, replacements: Mapping[Ref, Expr]) -> Call:
        """The same call with columns replaced by expressions."""
        argument, where, text = (
            one.substitute(replacements) if one else None for one in (self.argument, self.filter, self.text)
        )
        return Call(self.function, argument, where, text)

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
    """One row per group; without keys, one row for everything."""

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
        """The columns of its input that it uses."""
        parts = [*(key.expr for key in self.keys), *(part for one in self.measures for part in one.call.parts())]
        return tuple(dict.fromkeys(ref for part in parts for ref in sorted(part.refs)))

    def over(self, input: Relation, replacements: Mapping[Ref, Expr]) -> Aggregate:
        """The same over other rows, in terms of their columns."""
        keys = tuple(Named(key.name, key.expr.substitute(replacements)) for key in self.keys)
        measures = tuple(Measure(one.name, one.call.substitute(replacements)) for one in self.measures)
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
    """Each row with what window functions say of it; all of them look at rows of equal keys only."""

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

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the input's columns, by position, then those of the calls."""
        return (*(f"c{n}" for n in range(len(self.input.columns))), *(call.name for call in self.calls))

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def headline(self) -> str:
        keys = ", ".join(map(str, self.keys)) or "(everything)"
        return f"Window  {self.alias}: by {keys}; {', '.join(map(str, self.calls))}"


@dataclass(frozen=True)
class Recursion(Relation):
    """The rows of `base`, and all that `step` makes of them, of those, and so on, until it makes no more.

    In `step`, a scan of the recursion itself stands for the rows that were found last. With `each_once` (UNION) a row
    that is there already is not found again; otherwise (UNION ALL) it is, as often as it is made.
    """

    name: str
    base: Relation
    step: Relation
    each_once: bool
    depth: int
    """How many recursions stand around it: by that its step's scans of itself are known."""
    text: str = field(repr=False)
    """A query that gives its rows: PostgreSQL tells the types and collations of its columns by it."""
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
        return f"Recursion  {self.alias}: {self.name} by {'UNION' if self.each_once else 'UNION ALL'}"


def rescanned(relation: Relation, swap: Callable[[Scan], Scan]) -> Relation:
    """The same with other scans."""
    if isinstance(relation, Scan):
        return swap(relation)
    if isinstance(relation, Join):
        return replace(relation, left=rescanned(relation.left, swap), right=rescanned(relation.right, swap))
    if isinstance(relation, UnionAll):
        return replace(relation, parts=tuple(rescanned(part, swap) for part in relation.parts))
    assert isinstance(relation, Filter | Project | Expand), f"unexpected {type(relation).__name__}"
    return replace(relation, input=rescanned(relation.input, swap))


@dataclass(frozen=True)
class Order:
    """An expression to sort by, and how: `DESC NULLS LAST`."""

    expr: Expr
    how: str = ""

    @property
    def sql(self) -> str:
        return f"{self.expr.sql} {self.how}".strip()

    def __str__(self) -> str:
        return self.sql


@dataclass(frozen=True)
class Limit(Relation):
    """The first rows in an order; ties are told apart by all columns."""

    input: Relation
    order: tuple[Order, ...]
    limit: str
    """`LIMIT 10 OFFSET 5`, as PostgreSQL reads it."""
    alias: str

    def __post_init__(self) -> None:
        for one in self.order:
            _check_refs(one.expr, self.input)

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(Ref(self.alias, f"c{n}") for n in range(len(self.input.columns)))

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def headline(self) -> str:
        return f"Limit  {self.alias}: by {', '.join(map(str, self.order)) or '(all columns)'} {self.limit}"


def _check_refs(expression: Expr, *inputs: Relation) -> None:
    known = {ref for relation in inputs for ref in relation.columns}
    unknown = expression.refs - known
    if unknown:
        raise ValueError(
            f"{expression} refers to {', '.join(map(str, sorted(unknown)))}, which its input does not have"
        )
