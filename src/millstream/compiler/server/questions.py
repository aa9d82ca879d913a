"""What the planner asks of PostgreSQL: types, constants, and the columns of a block's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from millstream.algebra.block import Block
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.algebra.table import Table
from millstream.algebra.types import PgType

# A value as it travels to Spark.
Constant = bool | int | float | str | None


class PlanningServer(Protocol):
    """Answers by the server's own word; nothing is guessed."""

    def types(self, expressions: Sequence[Expr], scans: Sequence[Scan]) -> tuple[PgType, ...]:
        """The types of expressions over these tables."""

    def values(self, expressions: Sequence[str]) -> tuple[Constant, ...]:
        """The values of expressions without columns."""

    def declare(self, block: Block) -> Table:
        """The rows of an inner block as a table that further blocks can read."""
