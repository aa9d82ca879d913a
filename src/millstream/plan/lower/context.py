"""The SELECT under construction while a body is lowered to Spark SQL.

Each node becomes one named step of a WITH chain, so the text reads in the order of the work and
`explain` can show it as it is. Columns are flat: input `i0`'s leaf `c1` is `i0_c1`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, ref_of, transform
from millstream.algebra.relation import Relation

BEFORE, AFTER, NET = "__before", "__after", "__net"

Rule = Callable[[Relation, "Lowering"], str]


@dataclass
class Lowering:
    """The steps so far; a rule adds its own and returns the step's name."""

    rules: dict[type[Relation], Rule]
    views: dict[str, str]
    """The Spark view that holds the rows of each input."""
    few: bool = False
    """Are there so few rows that one partition holds them?"""
    steps: list[tuple[str, str]] = field(default_factory=list)

    @property
    def select(self) -> str:
        """SELECT, where Spark would not know that all rows are in one partition, and exchange them in another stage."""
        return "SELECT /*+ COALESCE(1) */" if self.few else "SELECT"

    def lower(self, node: Relation) -> str:
        """Lower a node; returns the name of its step."""
        return self.rules[type(node)](node, self)

    def step(self, name: str, select: str) -> str:
        """Add a step under a name of its own."""
        unique = f"{name}_{len(self.steps)}"
        self.steps.append((unique, select))
        return unique

    def finish(self, last: str) -> str:
        """The whole statement."""
        body = ",\n".join(f"{name} AS (\n  {select}\n)" for name, select in self.steps)
        return f"WITH {body}\n{last}"


def flat(ref: Ref) -> str:
    """The name of a column in Spark: the body's own columns keep theirs."""
    return ref.column if ref.alias == "b" else f"{ref.alias}_{ref.column}"


def flat_columns(node: Relation) -> list[str]:
    return [flat(ref) for ref in node.columns]


def spark(expression: Expr) -> str:
    """The expression in Spark's SQL."""

    def rename(node: exp.Expression) -> exp.Expression:
        return exp.column(flat(ref_of(node))) if isinstance(node, exp.Column) else node

    return transform(expression.tree, rename).sql(dialect="spark")
