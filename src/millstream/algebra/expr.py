"""A scalar expression: PostgreSQL's text of it, frozen, with its column references known.

Every reference has two parts, `"alias"."column"`, and aliases are unique in a query, so an
expression means the same wherever it stands. Two expressions are equal when their texts are.

>>> Expr.parse('("o"."q" * 2)').refs
frozenset({Ref(alias='o', column='q')})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Self

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.table import quoted


@dataclass(frozen=True, order=True)
class Ref:
    """A column of a relation."""

    alias: str
    column: str

    def __str__(self) -> str:
        return f"{self.alias}.{self.column}"

    @property
    def sql(self) -> str:
        return f"{quoted(self.alias)}.{quoted(self.column)}"


@dataclass(frozen=True)
class Expr:
    """One expression, as PostgreSQL would read it."""

    sql: str

    @classmethod
    def of(cls, node: exp.Expression) -> Self:
        return cls(printed(node))

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls.of(_tree(text))

    @classmethod
    def ref(cls, alias: str, column: str) -> Self:
        return cls(Ref(alias, column).sql)

    @property
    def node(self) -> exp.Expression:
        """A syntax tree of one's own, to change or to put into another."""
        return self.tree.copy()

    @property
    def tree(self) -> exp.Expression:
        """The syntax tree that all share, to look at."""
        return _tree(self.sql)

    @cached_property
    def refs(self) -> frozenset[Ref]:
        return frozenset(ref_of(column) for column in self.tree.find_all(exp.Column))

    @cached_property
    def aliases(self) -> frozenset[str]:
        return frozenset(ref.alias for ref in self.refs)

    @cached_property
    def as_ref(self) -> Ref | None:
        """The column it is, if it is nothing but a column."""
        node = unwrapped(self.tree)
        return ref_of(node) if isinstance(node, exp.Column) else None

    @cached_property
    def late(self) -> bool:
        """Does it raise an error where a subquery has several rows? Only for rows of the result that may be."""
        return "SELECT" in self.sql and self.tree.find(exp.Select) is not None

    def substitute(self, replacements: Mapping[Ref, Expr]) -> Expr:
        """The same expression with columns replaced by expressions."""

        def replace(node: exp.Expression) -> exp.Expression:
            if isinstance(node, exp.Column) and (found := replacements.get(ref_of(node))):
                # ROW(a, b) = ROW(c, d) would be a comparison of a with c and b with d, and not of two values.
                return Expr(f"CAST({found} AS RECORD)").node if is_row(found.tree) else parenthesised(found.node)
            return node

        return Expr.of(transform(self.tree, replace))

    def __str__(self) -> str:
        return self.sql


def transform(node: exp.Expression, change: Callable[[exp.Expression], exp.Expression]) -> exp.Expression:
    """sqlglot's transform, typed."""
    changed = node.transform(change, copy=True)
    assert isinstance(changed, exp.Expression)
    return changed


def conjuncts(expression: Expr) -> Iterator[Expr]:
    """The parts of an AND, at any depth; what all parts of an OR have in common is one too.

    >>> [part.sql for part in conjuncts(Expr("(a AND b) OR (a AND c)"))]
    ['a', '(b) OR (c)']
    """
    yield from _conjuncts(expression.tree)


def _conjuncts(node: exp.Expression) -> Iterator[Expr]:
    for part in operands(node, exp.And):
        if isinstance(part, exp.Or):
            yield from _common(part)
        else:
            yield Expr.of(part)


def operands(node: exp.Expression, kind: type[exp.Expression]) -> list[exp.Expression]:
    """The operands of a chain of one operator, at any depth, without their parentheses.

    >>> [part.sql() for part in operands(Expr("(a OR b) OR (c OR d AND e)").tree, exp.Or)]
    ['a', 'b', 'c', 'd AND e']
    """
    found, waiting = list[exp.Expression](), [node]
    while waiting:
        one = unwrapped(waiting.pop())
        if isinstance(one, kind):
            waiting += [one.expression, one.this]
        else:
            found.append(one)
    return found


def equated(condition: Expr) -> tuple[Expr, Expr] | None:
    """Both sides of an equality; of one by which NULLs are equal too.

    >>> equated(Expr("NOT (a IS DISTINCT FROM b)"))
    (Expr(sql='a'), Expr(sql='b'))
    """
    node = unwrapped(condition.tree)
    if isinstance(node, exp.Not):
        node = unwrapped(node.this)
        kinds: tuple[type[exp.Expression], ...] = (exp.NullSafeNEQ,)
    else:
        kinds = (exp.EQ, exp.NullSafeEQ)
    if not isinstance(node, kinds) or is_quantified(node) or is_record(node.this) or is_record(node.expression):
        return None
    return Expr.of(unwrapped(node.this)), Expr.of(unwrapped(node.expression))


def is_quantified(node: exp.Expression) -> bool:
    """Does it compare with ANY or ALL of an array? Those words and the array are no value."""
    return isinstance(node, exp.Binary) and isinstance(node.expression, exp.Any | exp.All)


def is_row(node: exp.Expression) -> bool:
    """Is it ROW(a, b)?"""
    node = unwrapped(node)
    return isinstance(node, exp.Anonymous) and node.this == "ROW"


def is_record(node: exp.Expression) -> bool:
    """Is it a row, or an array of rows? No column has that type."""
    node = unwrapped(node)
    if isinstance(node, exp.Array):
        return any(map(is_record, node.expressions))
    return is_row(node) or (isinstance(node, exp.Cast) and is_record(node.this) and printed(node.to) == "RECORD")


def alternatives(expression: Expr) -> list[Expr]:
    """The parts of an OR, at any depth."""
    return [Expr.of(node) for node in operands(expression.tree, exp.Or)]


def all_of(parts: Iterable[Expr]) -> Expr:
    """The AND of some expressions."""
    return _combined(list(parts), "AND")


def any_of(parts: Iterable[Expr]) -> Expr:
    """The OR of some expressions."""
    return _combined(list(parts), "OR")


def _combined(parts: list[Expr], word: str) -> Expr:
    return parts[0] if len(parts) == 1 else Expr.parse(f" {word} ".join(f"({part.sql})" for part in parts))


def _common(node: exp.Or) -> Iterator[Expr]:
    parts = [list(dict.fromkeys(_conjuncts(one))) for one in operands(node, exp.Or)]
    shared = [part for part in parts[0] if all(part in other for other in parts[1:])]
    if not shared:
        yield Expr.of(node)
        return
    yield from shared
    rests = [[part for part in own if part not in shared] for own in parts]
    # Where nothing is left of one alternative, what they share is all that they say.
    if all(rests):
        yield any_of(all_of(rest) for rest in rests)


def unwrapped(node: exp.Expression) -> exp.Expression:
    """Without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def parenthesised(node: exp.Expression) -> exp.Expression:
    """In parentheses unless it is one word."""
    simple = exp.Column | exp.Literal | exp.Paren | exp.Null | exp.Boolean | exp.Func
    # To sqlglot AND, OR and ^ are functions too.
    return node if isinstance(node, simple) and not isinstance(node, exp.Binary) else exp.Paren(this=node)


def ref_of(column: exp.Column) -> Ref:
    return Ref(column.table, column.name)


@lru_cache(maxsize=10_000)
def _tree(text: str) -> exp.Expression:
    node = parsed(f"SELECT {text}").expressions[0]
    assert isinstance(node, exp.Expression)
    return node.pop()
