"""Bindings: the distinct values of the outer columns that a subquery refers to.

A correlated subquery has another result for each value of its outer columns. Build it once for all
of them, over the distinct values D (the "domain" of Neumann and Kemper):

    c, LATERAL (SELECT o.id FROM o WHERE o.total > c.bound ORDER BY o.id LIMIT 3)

    D   the distinct values of c.bound
    Q   SELECT o.id, D.bound FROM D, o WHERE o.total > D.bound, the first 3 for each D.bound
    c joined to Q by c.bound IS NOT DISTINCT FROM Q.bound

Each SELECT of the subquery that refers to an outer column joins D in its FROM, and passes D's
columns on as its last output columns: the *binding columns*. On the way these become group keys,
PARTITION BY keys of windows, and columns of set operations.

D has the text of a value if equal values can look different: 1.0 and 1.00 are equal, but a subquery
that prints the value has another result for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.algebra.expr import Expr, Ref
from millstream.algebra.relation import Aggregate, Join, Named, Relation
from millstream.algebra.types import PgType
from millstream.compiler.decorrelate.scope import Scope, ScopedRows


@dataclass(frozen=True)
class Correlated:
    """A decorrelated subquery, and the conditions that join its rows to the outer rows."""

    relation: Relation
    outputs: tuple[Expr, ...]
    """The columns of its own select list, without the binding columns."""
    correlations: tuple[Expr, ...]
    """The conditions; none if the subquery refers to no outer column."""


@dataclass(frozen=True)
class Bindings:
    """Outer columns that a subquery refers to, and the relation that has all their values."""

    values: tuple[Expr, ...]
    """The columns, in terms of `outer_rows`."""
    outer_rows: Relation
    types: tuple[PgType, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the binding columns in the output of a subquery."""
        return tuple(map(binding_name, range(len(self.values))))

    def distinct_values(self, alias: str) -> Aggregate:
        """Return the relation D: each combination of values once."""
        keys = tuple(Named(f"k{number}", key) for number, key in enumerate(self.keys))
        return Aggregate(self.outer_rows, keys, (), alias)

    @property
    def keys(self) -> tuple[Expr, ...]:
        """The columns of D: each value, or its text if equal values of its type can look different."""
        return tuple(
            Expr.parse(f"CAST({v.sql} AS TEXT)") if v in self.casts else v for v in self.values
        )

    @property
    def key_types(self) -> tuple[PgType, ...]:
        """The types of `keys`."""
        return tuple(
            _TEXT if v in self.casts else type_
            for v, type_ in zip(self.values, self.types, strict=True)
        )

    @property
    def casts(self) -> dict[Expr, str]:
        """The values whose key is their text, each with the type to cast the text back to."""
        typed = zip(self.values, self.types, strict=True)
        return {value: type_.name for value, type_ in typed if not _equal_is_identical(type_)}

    def correlations(self, binding_refs: Iterable[Expr]) -> tuple[Expr, ...]:
        """Return the conditions that join the outer rows to rows with these binding columns."""
        return tuple(
            not_distinct(key, ref) for key, ref in zip(self.keys, binding_refs, strict=True)
        )

    def join_to(self, left: ScopedRows, alias: str) -> ScopedRows:
        """Return the cross join of rows and D, with a scope that reads outer columns from D."""
        return ScopedRows(
            Join(left.rows, self.distinct_values(alias)), self.scope_under(left.scope, alias)
        )

    def scope_under(self, scope: Scope, alias: str) -> Scope:
        """Return a scope that reads outer columns from `distinct_values(alias)`."""
        return scope.with_bindings(self._columns_under(alias), self.casts)

    def _columns_under(self, alias: str) -> dict[Expr, Expr]:
        """Return the column of `distinct_values(alias)` that holds each value."""
        return {value: Expr.ref(alias, f"k{number}") for number, value in enumerate(self.values)}


@dataclass(frozen=True)
class BoundRows(ScopedRows):
    """The rows that the select list of a subquery is over, and the binding columns that it passes
    on.
    """

    binding_refs: tuple[Expr, ...] = ()
    """The binding columns: columns of D, or `o.customer` for the condition `o.customer = c.id`,
    which needs no D.
    """
    bindings: Bindings | None = None
    """None if no D is joined."""


_TEXT = PgType(25, "text", "text")
# Types whose equal values look the same.
_IDENTICAL_IF_EQUAL = frozenset(
    ["bool", "int2", "int4", "int8", "text", "varchar", "date", "time", "timestamp", "timestamptz", "uuid", "oid",
     "bytea", "char", "name"]
)  # fmt: skip


def _equal_is_identical(type_: PgType) -> bool:
    plain = type_.kind == "enum" or (
        type_.kind in ("base", "domain") and type_.base in _IDENTICAL_IF_EQUAL
    )
    return plain and type_.collation != "nondeterministic"


def binding_name(number: int) -> str:
    """Return the name of a binding column in the output of a subquery."""
    return f"__ms_binding_{number}"


def not_distinct(left: Expr, right: Expr) -> Expr:
    """Return `left IS NOT DISTINCT FROM right`: equality for which NULL equals NULL."""
    return Expr.parse(f"({left.sql}) IS NOT DISTINCT FROM ({right.sql})")


def output_refs(relation: Relation, binding_count: int) -> tuple[tuple[Ref, ...], tuple[Ref, ...]]:
    """Split the columns of a subquery into its output and its binding columns, which come last."""
    position = len(relation.columns) - binding_count
    return relation.columns[:position], relation.columns[position:]
