"""Name resolution: which column a name in a query refers to.

A `Scope` holds the columns that one FROM clause provides. The scope of a subquery has the scope of
the enclosing query as its `outer`: a column that the inner FROM does not provide is looked up
there, and recorded, because it makes the subquery correlated.

    SELECT ... FROM c WHERE EXISTS (SELECT FROM o WHERE o.customer = c.id)

    outer scope   ("c", "id") -> Ref("c", "id")
    inner scope   ("o", "customer") -> Ref("o", "customer");  c.id is found outside, so outer_refs = {c.id}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, transform, unwrapped, with_position_of
from millstream.algebra.relation import Aggregate, Filter, Join, Project, Relation, Scan
from millstream.errors import Unsupported

RelationT = TypeVar("RelationT", bound=Relation)

_SYSTEM_COLUMNS = frozenset({"tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"})

# The table name of a column that stands for a subquery until the other columns of the expression
# are resolved.
PLACEHOLDER = "__ms_subquery"


class OuterRefs:
    """Collects the columns of enclosing queries that the expressions of one query refer to."""

    def __init__(self) -> None:
        self.found: set[Ref] = set()

    def record(self, refs: Iterable[Ref]) -> None:
        """Add columns."""
        self.found.update(refs)


@dataclass(frozen=True, eq=False)
class Scope:
    """The columns that a FROM clause provides, by (alias, name) as written, each with its unique
    Ref.

    A scope never changes. As FROM is built, item by item, each `with_...` returns a larger scope;
    all of these share one `outer_refs`.
    """

    outer: Scope | None = None
    select: exp.Select | None = None
    """The SELECT that has this FROM clause."""
    columns: Mapping[tuple[str, str], Ref] = field(default_factory=dict)
    output: tuple[tuple[str, Expr], ...] = ()
    """The columns of `SELECT *`: the merged columns of USING first, each once."""
    bindings: Mapping[Expr, Expr] = field(default_factory=dict)
    """Outer column -> the column of this FROM that holds its value, once the bindings are joined.
    """
    casts: Mapping[Expr, str] = field(default_factory=dict)
    """The type of each outer column whose binding is stored as text."""
    early_conditions: tuple[exp.Expression, ...] = ()
    """Conjuncts of WHERE that may filter as soon as all their columns are in scope."""
    outer_refs: OuterRefs = field(default_factory=OuterRefs)
    """Columns of enclosing queries that `find` has returned."""

    def empty(self) -> Scope:
        """Return a scope of the same SELECT without columns: for an item of its FROM."""
        return Scope(self.outer, self.select)

    def with_columns(self, alias: str, names: Sequence[str], refs: Sequence[Ref]) -> Scope:
        """Add the columns of a FROM item."""
        named = list(zip(names, refs, strict=True))
        columns = {(alias, name): ref for name, ref in named}
        output = tuple((name, Expr(ref.sql)) for name, ref in named)
        return replace(self, columns={**self.columns, **columns}, output=(*self.output, *output))

    def with_hidden_column(self, key: tuple[str, str], ref: Ref) -> Scope:
        """Add a column that is not among those of `SELECT *`."""
        return replace(self, columns={**self.columns, key: ref})

    def with_join(self, right: Scope, using: Mapping[str, Expr]) -> Scope:
        """Add the columns of the right side of a join; `using` has the merged expression of each
        USING column.
        """
        unmerged = tuple(
            (name, expr) for name, expr in (*self.output, *right.output) if name not in using
        )
        return replace(
            self, columns={**self.columns, **right.columns}, output=(*using.items(), *unmerged)
        )

    def with_bindings(self, columns: Mapping[Expr, Expr], casts: Mapping[Expr, str]) -> Scope:
        """Read outer columns from these columns of this FROM."""
        return replace(self, bindings=columns, casts=casts)

    def with_renamed(self, refs: Mapping[Ref, Ref]) -> Scope:
        """Replace columns by the columns that hold their values above another operator."""
        columns = {key: refs.get(ref, ref) for key, ref in self.columns.items()}
        replacements = {old: Expr(new.sql) for old, new in refs.items()}
        output = tuple((name, expr.substitute(replacements)) for name, expr in self.output)
        bindings = {value: expr.substitute(replacements) for value, expr in self.bindings.items()}
        return replace(self, columns=columns, output=output, bindings=bindings)

    def with_early_conditions(self, conditions: Sequence[exp.Expression]) -> Scope:
        """Replace the conjuncts of WHERE that may filter early."""
        return replace(self, early_conditions=tuple(conditions))

    def without_outer_refs(self) -> Scope:
        """Forget the outer columns found so far: those of equalities that take the place of
        bindings.
        """
        return replace(self, outer_refs=OuterRefs())

    def unqualified(self, name: str) -> Expr:
        """Return the column that a name without an alias refers to."""
        return next(expr for own_name, expr in self.output if own_name == name)

    def find(self, alias: str, name: str) -> Expr | None:
        """Return a column of this query or of an enclosing one; record it in `outer_refs` if it is
        an outer one.

        An outer column whose binding is joined to this FROM is returned as that binding, and not
        recorded.
        """
        if (own := self._own(alias, name)) is not None:
            return own
        outer = self.outer.find(alias, name) if self.outer else None
        if outer is not None and outer in self.bindings:
            return self._binding_of(outer)
        if outer is not None:
            self.outer_refs.record(outer.refs)
        return outer

    def peek(self, alias: str, name: str) -> Expr | None:
        """Return what `find` would return, and record nothing."""
        if (own := self._own(alias, name)) is not None:
            return own
        outer = self.outer.peek(alias, name) if self.outer else None
        return self._binding_of(outer) if outer is not None and outer in self.bindings else outer

    def _binding_of(self, outer: Expr) -> Expr:
        """Return the binding of an outer column, cast back to its type if it is stored as text."""
        binding = self.bindings[outer]
        type_name = self.casts.get(outer)
        return Expr.parse(f"CAST({binding.sql} AS {type_name})") if type_name else binding

    def ready_conditions(self) -> list[exp.Expression]:
        """Return the early conditions whose columns are all in scope."""
        return [
            condition for condition in self.early_conditions if self._owns_all_columns(condition)
        ]

    def _owns_all_columns(self, node: exp.Expression) -> bool:
        return all(self.owner(column) is self for column in node.find_all(exp.Column))

    def owner(self, column: exp.Column) -> Scope | None:
        """Return the innermost scope, this one or an enclosing one, that has a column."""
        if self._own(column.table, column.name) is not None:
            return self
        return self.outer.owner(column) if self.outer else None

    def _own(self, alias: str, name: str) -> Expr | None:
        if not alias:
            return next((expr for own_name, expr in self.output if own_name == name), None)
        ref = self.columns.get((alias, name))
        return Expr(ref.sql) if ref else None

    def resolve(self, node: exp.Expression) -> Expr:
        """Return an expression with every column replaced by the column it refers to.

        Raise Unsupported if a column is a system column or a whole row.
        """

        def replace(part: exp.Expression) -> exp.Expression:
            return (
                with_position_of(part, self._resolve_column(part).node)
                if isinstance(part, exp.Column)
                else part
            )

        return Expr.of(transform(unwrapped(node), replace))

    def _resolve_column(self, column: exp.Column) -> Expr:
        if isinstance(column.this, exp.Star):
            raise Unsupported.construct(
                "a reference to a whole row",
                reason="Its type is the table's own.",
                way_round="Name the columns.",
                node=column,
            )
        if column.table == PLACEHOLDER:
            return Expr.of(column)
        resolved = self.find(column.table, column.name)
        if resolved is None and column.name not in _SYSTEM_COLUMNS:
            raise Unsupported.construct(
                f"a reference to {column.sql()} from inside parentheses around a join",
                reason="Items before the parentheses cannot be referenced there.",
                way_round="Join the tables in another order, without the parentheses.",
                node=column,
            )
        if resolved is None:
            raise Unsupported.construct(
                f'system column "{column.name}"',
                reason="It is the place where a row is stored, which changes without a change in the data.",
                way_round="Use a column of the table.",
                node=column,
            )
        return resolved


@dataclass(frozen=True)
class ScopedRows:
    """Rows, and the scope that names their columns."""

    rows: Relation
    scope: Scope

    def over(self, relation: Relation) -> ScopedRows:
        """Return other rows with the same columns, such as a filter of these."""
        return replace(self, rows=relation)


def is_never_null(relation: Relation, ref: Ref) -> bool:
    """Return True if a column of a relation is known to be NOT NULL."""
    match relation:
        case Scan(table, alias):
            column = table.column(ref.column) if ref.alias == alias else None
            return column is not None and column.not_null
        case Filter(input_):
            return is_never_null(input_, ref)
        case Project(input_, outputs, alias) | Aggregate(input_, outputs, _, alias):
            input_ref = next(
                (output.expr.as_ref for output in outputs if ref == Ref(alias, output.name)), None
            )
            return input_ref is not None and is_never_null(input_, input_ref)
        case Join(left, right, kind="inner"):
            return is_never_null(left, ref) or is_never_null(right, ref)
        case Join(left, kind="left" | "mark"):
            # The right columns of a left join may be null-extended.
            return is_never_null(left, ref)
    return False


def refuse_unresolved(make: Callable[[], RelationT]) -> RelationT:
    """Return the relation that `make` builds; raise Unsupported if its expressions refer to columns
    it does not have.

    That happens when a subquery refers to a query further out than the one that encloses it
    directly.
    """
    try:
        return make()
    except ValueError as error:
        raise Unsupported.construct(
            "a subquery that is correlated with more than the query directly around it",
            reason=f"Millstream does not maintain it yet: {error}.",
            way_round="Write it as a join.",
        ) from error
