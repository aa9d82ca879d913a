"""What the columns of a FROM clause are called, as written, and what they are.

A subquery's scope stands inside that of the query around it: a column not found there is looked for outside, and
noted, for the subquery is correlated then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, transform, unwrapped
from millstream.algebra.relation import Aggregate, Filter, Join, Project, Relation, Scan
from millstream.errors import Unsupported

Made = TypeVar("Made", bound=Relation)

_SYSTEM = frozenset({"tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"})

# Stands for a subquery in an expression whose columns are still to be resolved.
PLACE = "__ms_subquery"


@dataclass
class Scope:
    """(alias, column) as written -> the unique Ref."""

    outer: Scope | None = None
    select: exp.Select | None = None
    """The query whose FROM it is of."""
    columns: dict[tuple[str, str], Ref] = field(default_factory=dict)
    output: list[tuple[str, Expr]] = field(default_factory=list)
    """What `*` gives: a column of USING once, and first."""
    outside: set[Ref] = field(default_factory=set)
    """Columns of the queries around it that were used."""
    bindings: dict[Expr, Expr] = field(default_factory=dict)
    """Columns of the queries around it that stand among the columns here."""
    casts: Mapping[Expr, str] = field(default_factory=dict)
    """Of those that stand here as text: their types."""
    early: list[exp.Expression] = field(default_factory=list)
    """Conditions of WHERE that may be asked as soon as all their columns are here."""

    def add(self, alias: str, names: Sequence[str], refs: Sequence[Ref]) -> None:
        """Take in a table."""
        self.columns.update({(alias, name): ref for name, ref in zip(names, refs, strict=True)})
        self.output += [(name, Expr(ref.sql)) for name, ref in zip(names, refs, strict=True)]

    def join(self, right: Scope, using: Mapping[str, Expr]) -> None:
        """Take in what stands to the right; of each column of USING, what it is from here on."""
        self.columns.update(right.columns)
        rest = [(name, expr) for name, expr in (*self.output, *right.output) if name not in using]
        self.output = [*using.items(), *rest]

    def moved(self, refs: Mapping[Ref, Ref]) -> None:
        """The columns are from here on known as others."""
        self.columns = {key: refs.get(ref, ref) for key, ref in self.columns.items()}
        replaced = {old: Expr(new.sql) for old, new in refs.items()}
        self.output = [(name, expr.substitute(replaced)) for name, expr in self.output]
        self.bindings = {value: expr.substitute(replaced) for value, expr in self.bindings.items()}

    def shown(self, name: str) -> Expr:
        """The column of that name that is written without an alias."""
        return next(expr for own, expr in self.output if own == name)

    def find(self, alias: str, name: str) -> Expr | None:
        """What a column is; looked for outside where it is not here."""
        if (own := self._own(alias, name)) is not None:
            return own
        found = self.outer.find(alias, name) if self.outer else None
        if found is not None and found in self.bindings:
            return self._read_back(found)
        if found is not None:
            self.outside |= found.refs
        return found

    def peek(self, alias: str, name: str) -> Expr | None:
        """The same, not noted."""
        own = self._own(alias, name)
        found = self.outer.peek(alias, name) if own is None and self.outer else own
        return self._read_back(found) if own is None and found in self.bindings else found

    def _read_back(self, value: Expr) -> Expr:
        """A column of the queries around, as it is found here."""
        here, cast = self.bindings[value], self.casts.get(value)
        return Expr.parse(f"CAST({here.sql} AS {cast})") if cast else here

    def ready(self) -> list[Expr]:
        """The early conditions whose columns are all here; each is told once."""
        found = [one for one in self.early if all(self.owner(column) is self for column in one.find_all(exp.Column))]
        self.early = [one for one in self.early if one not in found]
        return [self.resolve(one) for one in found]

    def owner(self, column: exp.Column) -> Scope | None:
        """The scope that a column is of: this one, or one around it."""
        if self._own(column.table, column.name) is not None:
            return self
        return self.outer.owner(column) if self.outer else None

    def _own(self, alias: str, name: str) -> Expr | None:
        if not alias:
            return next((expr for own, expr in self.output if own == name), None)
        ref = self.columns.get((alias, name))
        return Expr(ref.sql) if ref else None

    def resolve(self, node: exp.Expression) -> Expr:
        """An expression with every column resolved."""

        def column(part: exp.Expression) -> exp.Expression:
            return self._resolved(part).node if isinstance(part, exp.Column) else part

        return Expr.of(transform(unwrapped(node), column))

    def _resolved(self, column: exp.Column) -> Expr:
        if isinstance(column.this, exp.Star):
            raise Unsupported.construct(
                "a reference to a whole row", reason="Its type is the table's own.", way_round="Name the columns."
            )
        if column.table == PLACE:
            return Expr.of(column)
        found = self.find(column.table, column.name)
        if found is None and column.name not in _SYSTEM:
            raise Unsupported.construct(
                f"a reference to {column.sql()} from inside parentheses around a join",
                reason="What stands before them is not in sight there.",
                way_round="Join the tables in another order, without the parentheses.",
            )
        if found is None:
            raise Unsupported.construct(
                f'system column "{column.name}"',
                reason="It tells where a row is stored, which changes without a change in the data.",
                way_round="Use a column of the table.",
            )
        return found


def never_null(relation: Relation, ref: Ref) -> bool:
    """Is a column known never to be NULL?"""
    if isinstance(relation, Scan):
        column = relation.table.column(ref.column) if ref.alias == relation.alias else None
        return column is not None and column.not_null
    if isinstance(relation, Filter):
        return never_null(relation.input, ref)
    if isinstance(relation, Project | Aggregate):
        named = relation.outputs if isinstance(relation, Project) else relation.keys
        found = next((one.expr.as_ref for one in named if ref == Ref(relation.alias, one.name)), None)
        return found is not None and never_null(relation.input, found)
    if isinstance(relation, Join):
        sides = [relation.left, relation.right] if relation.kind == "inner" else [relation.left]
        return relation.kind != "full" and any(never_null(side, ref) for side in sides)
    return False


def refuse_unresolved(make: Callable[[], Made]) -> Made:
    """Make a relation; where its expressions refer to what is not there, a subquery reaches too far out."""
    try:
        return make()
    except ValueError as error:
        raise Unsupported.construct(
            "a subquery that is tied to more than the query right around it",
            reason=f"Millstream does not maintain it yet: {error}.",
            way_round="Write it as a join.",
        ) from error
