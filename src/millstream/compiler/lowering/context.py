"""The SELECT under construction while a body is lowered to Spark SQL.

Each node becomes one named step of a WITH chain, so that the text `explain` shows reads in the
order of the work. In the text for Spark each step that is used once is written in place: Spark
resolves and copies each named step by itself, which takes a tenth of an evaluation over few rows.
Columns are flat: leaf `c1` of input `i0` is `i0_c1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, ref_of, transform
from millstream.algebra.relation import Relation
from millstream.compiler.placement.decimals.attempt import EXACT
from millstream.spark.numbers import NO_NUMBER

BEFORE, AFTER, NET = "__before", "__after", "__net"

Rule = Callable[[Relation, "Lowering"], str]

_RAISE = exp.cast(
    exp.Anonymous(this="RAISE_ERROR", expressions=[exp.Literal.string(NO_NUMBER)]), "boolean"
)

# Stands before and after the name of a step in a text. A text of PostgreSQL never contains a zero
# character.
_PLACEHOLDER = "\0"


@dataclass
class Lowering:
    """The steps so far; a rule adds its steps and returns the last one."""

    rules: dict[type[Relation], Rule]
    views: dict[str, str]
    """The Spark view that holds the rows of each input."""
    few: bool = False
    """There are so few rows that one partition holds them."""
    exact: bool = True
    """Compare numbers by their operands where Spark has none; otherwise raise `NO_NUMBER` there."""
    consolidated: bool = False
    """Consolidate the rows of each input before they are joined. Otherwise a stored row and the
    image that corrects it form pairs that cancel only later, and an expression could raise an error
    for them.
    """
    steps: list[tuple[str, str]] = field(default_factory=list)

    @property
    def select(self) -> str:
        """SELECT, with a hint if there are few rows: all are in one partition, so Spark need not
        exchange them.
        """
        return "SELECT /*+ COALESCE(1) */" if self.few else "SELECT"

    def lower(self, node: Relation) -> str:
        """Lower a node by the rule of its type, and return its step."""
        return self.rules[type(node)](node, self)

    def step(self, name: str, select: str) -> str:
        """Add a step under a unique name, and return its placeholder for a FROM clause."""
        unique = f"{name}_{len(self.steps)}"
        self.steps.append((unique, select))
        return f"{_PLACEHOLDER}{unique}{_PLACEHOLDER}"

    def spark(self, expression: Expr) -> str:
        """Return an expression in Spark's SQL."""
        tree = (
            transform(expression.tree, self._decided)
            if EXACT in expression.sql
            else expression.tree
        )
        return transform(tree, _renamed).sql(dialect="spark")

    def _decided(self, node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Anonymous) and node.name == EXACT:
            # transform does not descend into the replacement: a number may be chosen by another
            # comparison.
            return transform(node.expressions[0], self._decided) if self.exact else _RAISE.copy()
        return node

    def finish(self, last: str, *, nested: bool) -> str:
        """Return the whole statement; with `nested`, steps that are used once are written in place."""
        texts = [*(select for _, select in self.steps), last]
        uses = Counter(name for text in texts for name in text.split(_PLACEHOLDER)[1::2])
        inner = {name for name, count in uses.items() if nested and count == 1}
        selects = dict(self.steps)

        def written(text: str) -> str:
            parts = text.split(_PLACEHOLDER)
            parts[1::2] = [
                f"({written(selects[name])})" if name in inner else name for name in parts[1::2]
            ]
            return "".join(parts)

        named = [
            f"{name} AS (\n  {written(select)}\n)"
            for name, select in self.steps
            if name not in inner
        ]
        chain = ",\n".join(named)
        return f"WITH {chain}\n{written(last)}" if named else written(last)


def flat(ref: Ref) -> str:
    """Return the name of a column in Spark; the columns of the body `b` have no prefix."""
    return ref.column if ref.alias == "b" else f"{ref.alias}_{ref.column}"


def _renamed(node: exp.Expression) -> exp.Expression:
    return exp.column(flat(ref_of(node))) if isinstance(node, exp.Column) else node


def flat_columns(node: Relation) -> list[str]:
    """Return the names of a node's columns in Spark."""
    return [flat(ref) for ref in node.columns]


def may_raise(expression: Expr) -> bool:
    """True if Spark may raise an error for a row: arithmetic leaves its range, or the row has an
    error of its own.
    """
    if expression.tree.find(exp.Add, exp.Sub, exp.Mul, exp.Neg):
        return True
    return any(
        call.name.upper() == "RAISE_ERROR" for call in expression.tree.find_all(exp.Anonymous)
    )


def in_a_version(expressions: Iterable[Expr]) -> list[str]:
    """Return the condition that a row is in a version, if an expression may raise for one that is
    in neither.
    """
    return [f"({BEFORE} <> 0L OR {AFTER} <> 0L)"] if any(map(may_raise, expressions)) else []
