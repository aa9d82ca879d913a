"""The SELECT under construction while a body is lowered to Spark SQL.

Each node becomes one named step of a WITH chain, so the text reads in the order of the work: so `explain` shows it.
Spark gets it with each step that is used once in the place of its name: it resolves, and copies, each named one by
itself, a tenth of an evaluation over few rows. Columns are flat: input `i0`'s leaf `c1` is `i0_c1`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, ref_of, transform
from millstream.algebra.relation import Relation

BEFORE, AFTER, NET = "__before", "__after", "__net"

Rule = Callable[[Relation, "Lowering"], str]

# A step where it is used. No text of PostgreSQL's has a zero in it, so no literal looks like one.
_MENTION = re.compile("\0(\\w+)\0")


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
        """Add a step under a name of its own; returns what stands for it in a FROM clause."""
        unique = f"{name}_{len(self.steps)}"
        self.steps.append((unique, select))
        return f"\0{unique}\0"

    def finish(self, last: str, *, nested: bool) -> str:
        """The whole statement; `nested`, steps that are used once stand in the place of their names."""
        uses = Counter(_MENTION.findall("".join([*(select for _, select in self.steps), last])))
        inner = {name for name in uses if nested and uses[name] == 1}
        selects = dict(self.steps)

        def written(text: str) -> str:
            return _MENTION.sub(lambda found: in_place(found[1]) if found[1] in inner else found[1], text)

        def in_place(name: str) -> str:
            return f"({written(selects[name])})"

        named = [f"{name} AS (\n  {written(select)}\n)" for name, select in self.steps if name not in inner]
        chain = ",\n".join(named)
        return f"WITH {chain}\n{written(last)}" if named else written(last)


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
