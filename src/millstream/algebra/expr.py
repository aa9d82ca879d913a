"""A scalar expression: PostgreSQL's text of it, frozen, with its column references known.

Every reference has two parts, `"alias"."column"`. An alias is unique among the inputs of a
relation, so an expression means the same wherever it stands in that relation. Two expressions are
equal if their texts are.

>>> Expr.parse('("o"."q" * 2)').refs
frozenset({Ref(alias='o', column='q')})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Self

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.positions import has_position, position_of, set_position
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
        return quoted(self.alias, self.column)


@dataclass(frozen=True)
class Expr:
    """One expression, as PostgreSQL would read it."""

    sql: str
    positions: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """The positions of its nodes in the user's text, depth first; empty unless the query was parsed
    with positions.
    """

    @classmethod
    def of(cls, node: exp.Expression) -> Self:
        """Return the expression of a syntax tree."""
        return cls(printed(node), _positions(node))

    @classmethod
    def parse(cls, text: str, *parts: Expr) -> Self:
        """Return the expression of a text, printed in the one form that equality compares.

        The expressions `parts`, of which the text is made, keep their positions in it.
        """
        placed = [part for part in parts if part.positions]
        return cls.of(_tree_of_parts(text, placed) if placed else _tree(text))

    @classmethod
    def ref(cls, alias: str, column: str) -> Self:
        """Return the expression that is one column."""
        return cls(Ref(alias, column).sql)

    @property
    def node(self) -> exp.Expression:
        """A copy of the syntax tree, to change or to put into another tree."""
        return self.tree.copy()

    @property
    def tree(self) -> exp.Expression:
        """The cached syntax tree, shared by all equal expressions: never change it."""
        return _tree_with_positions(self.sql, self.positions) if self.positions else _tree(self.sql)

    def at_position(self, position: int) -> Self:
        """Return the same expression with a position of its own."""
        return replace(self, positions=(position, *self.positions[1:])) if position else self

    @property
    def position(self) -> int:
        """The position of the expression in the user's text; 0 if it is unknown."""
        return self.positions[0] if self.positions else 0

    @cached_property
    def refs(self) -> frozenset[Ref]:
        """The columns that it mentions."""
        return frozenset(ref_of(column) for column in self.tree.find_all(exp.Column))

    @cached_property
    def aliases(self) -> frozenset[str]:
        """The aliases of the columns that it mentions."""
        return frozenset(ref.alias for ref in self.refs)

    @cached_property
    def as_ref(self) -> Ref | None:
        """The column, if the expression is a column and nothing else; otherwise None."""
        node = unwrapped(self.tree)
        return ref_of(node) if isinstance(node, exp.Column) else None

    @cached_property
    def has_subquery(self) -> bool:
        """True if it contains a subquery, which can raise "more than one row returned": evaluate it
        after the joins.
        """
        return "SELECT" in self.sql and self.tree.find(exp.Select) is not None

    def substitute(self, replacements: Mapping[Ref, Expr]) -> Expr:
        """Replace columns by expressions."""

        def replaced(node: exp.Expression) -> exp.Expression:
            if isinstance(node, exp.Column) and (found := replacements.get(ref_of(node))):
                # ROW(a, b) = ROW(c, d) would be a comparison of a with c and b with d, and not of
                # two values.
                value = (
                    Expr(f"CAST({found} AS RECORD)").node
                    if is_row(found.tree)
                    else parenthesised(found.node)
                )
                return with_position_of(node, value)
            return node

        return Expr.of(transform(self.tree, replaced))

    def __str__(self) -> str:
        return self.sql


def transform(
    node: exp.Expression, change: Callable[[exp.Expression], exp.Expression]
) -> exp.Expression:
    """Return a copy of a syntax tree with each node replaced by `change(node)`."""
    changed = node.transform(change, copy=True)
    assert isinstance(changed, exp.Expression)
    return changed


def conjuncts(expression: Expr) -> Iterator[Expr]:
    """Yield the operands of an AND, at any depth; a condition common to all operands of an OR is
    one too.

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
    """Return the operands of a chain of one operator, at any depth, without their parentheses.

    >>> [part.sql() for part in operands(Expr("(a OR b) OR (c OR d AND e)").tree, exp.Or)]
    ['a', 'b', 'c', 'd AND e']
    """
    result = list[exp.Expression]()
    waiting = [node]
    while waiting:
        operand = unwrapped(waiting.pop())
        if isinstance(operand, kind):
            waiting += [operand.expression, operand.this]
        else:
            result.append(operand)
    return result


def equated(condition: Expr) -> tuple[Expr, Expr] | None:
    """Return both sides of an equality, `=` or IS NOT DISTINCT FROM; None for any other condition.

    >>> equated(Expr("NOT (a IS DISTINCT FROM b)"))
    (Expr(sql='a'), Expr(sql='b'))
    """
    node = unwrapped(condition.tree)
    if isinstance(node, exp.Not):
        node = unwrapped(node.this)
        kinds: tuple[type[exp.Expression], ...] = (exp.NullSafeNEQ,)
    else:
        kinds = (exp.EQ, exp.NullSafeEQ)
    if (
        not isinstance(node, kinds)
        or is_quantified(node)
        or is_record(node.this)
        or is_record(node.expression)
    ):
        return None
    return Expr.of(unwrapped(node.this)), Expr.of(unwrapped(node.expression))


def is_quantified(node: exp.Expression) -> bool:
    """True if a node compares with ANY or ALL of an array: its right side is not a value."""
    return isinstance(node, exp.Binary) and isinstance(node.expression, exp.Any | exp.All)


def is_row(node: exp.Expression) -> bool:
    """True if a node is a row constructor, ROW(a, b)."""
    node = unwrapped(node)
    return isinstance(node, exp.Anonymous) and node.this == "ROW"


def is_record(node: exp.Expression) -> bool:
    """True if a node is an anonymous row, or an array of such: a type that no column can have."""
    node = unwrapped(node)
    if isinstance(node, exp.Array):
        return any(map(is_record, node.expressions))
    return is_row(node) or (
        isinstance(node, exp.Cast) and is_record(node.this) and printed(node.to) == "RECORD"
    )


def alternatives(expression: Expr) -> list[Expr]:
    """Return the operands of an OR, at any depth."""
    return [Expr.of(node) for node in operands(expression.tree, exp.Or)]


def all_of(parts: Iterable[Expr]) -> Expr:
    """Return the AND of some expressions."""
    return _combined(list(parts), exp.And)


def any_of(parts: Iterable[Expr]) -> Expr:
    """Return the OR of some expressions."""
    return _combined(list(parts), exp.Or)


def _combined(parts: list[Expr], kind: type[exp.And | exp.Or]) -> Expr:
    if len(parts) == 1:
        return parts[0]
    whole: exp.Paren | exp.And | exp.Or = exp.Paren(this=parts[0].node)
    for part in parts[1:]:
        whole = kind(this=whole, expression=exp.Paren(this=part.node))
    if any(part.positions for part in parts):
        set_position(whole, 0)
    return Expr.of(whole)


def _common(node: exp.Or) -> Iterator[Expr]:
    """Yield the conditions that all alternatives share, then the OR of the others."""
    conditions = [
        list(dict.fromkeys(_conjuncts(alternative))) for alternative in operands(node, exp.Or)
    ]
    shared = [
        condition
        for condition in conditions[0]
        if all(condition in others for others in conditions[1:])
    ]
    if not shared:
        yield Expr.of(node)
        return
    yield from shared
    unshared = [
        [condition for condition in alternative if condition not in shared]
        for alternative in conditions
    ]
    # An alternative with no other condition is true whenever the shared ones are.
    if all(unshared):
        yield any_of(all_of(alternative) for alternative in unshared)


def unwrapped(node: exp.Expression) -> exp.Expression:
    """Return a node without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def parenthesised(node: exp.Expression) -> exp.Expression:
    """Return a node in parentheses, unless it needs none."""
    simple = exp.Column | exp.Literal | exp.Paren | exp.Null | exp.Boolean | exp.Func
    # To sqlglot AND, OR and ^ are functions too.
    return (
        node
        if isinstance(node, simple) and not isinstance(node, exp.Binary)
        else exp.Paren(this=node)
    )


def ref_of(column: exp.Column) -> Ref:
    """Return the reference that a column node is."""
    return Ref(column.table, column.name)


@lru_cache(maxsize=10_000)
def _tree(text: str) -> exp.Expression:
    node = parsed(f"SELECT {text}").expressions[0]
    assert isinstance(node, exp.Expression)
    return node.pop()


@lru_cache(maxsize=1_000)
def _tree_with_positions(text: str, positions: tuple[int, ...]) -> exp.Expression:
    """Return the tree of a text with the positions of its nodes; of the root only, if its shape
    differs.
    """
    tree = _tree(text).copy()
    nodes = list(tree.walk(bfs=False))
    for node, position in zip(
        nodes, positions if len(nodes) == len(positions) else positions[:1], strict=False
    ):
        set_position(node, position)
    return tree


def _tree_of_parts(text: str, parts: list[Expr]) -> exp.Expression:
    """Return the tree of a text with the positions of the parts that it is made of."""
    tree = _tree(text).copy()
    for node in tree.walk():
        part = next((part for part in parts if part.tree == node), None)
        for own, other in zip(node.walk(), part.tree.walk(), strict=True) if part else ():
            set_position(own, position_of(other))
    set_position(tree, position_of(tree))
    return tree


def _positions(node: exp.Expression) -> tuple[int, ...]:
    """Return the positions of a node and its parts, depth first; () if neither it nor its operands
    have one.
    """
    if not has_position(node) and not any(map(has_position, node.iter_expressions())):
        return ()
    return tuple(position_of(part) for part in node.walk(bfs=False))


def with_position_of(column: exp.Expression, value: exp.Expression) -> exp.Expression:
    """Return the expression that replaces a column: at its own position if it has one, else at that
    of the column.
    """
    inner = unwrapped(value)
    for node in (value, inner):
        if position := position_of(inner) or position_of(column):
            set_position(node, position)
    return value
