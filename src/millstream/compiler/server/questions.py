"""The questions that planning asks PostgreSQL: types, constants, and the columns of a block's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from millstream.algebra.block import Block
from millstream.algebra.expr import Expr
from millstream.algebra.relation import Scan
from millstream.algebra.table import BlockRows
from millstream.algebra.types import PgType
from millstream.errors import Unsupported

# A constant in the form that Spark SQL gets.
Constant = bool | int | float | str | None


class PlanningServer(Protocol):
    """A source of types and values; the real one asks the server and never guesses."""

    def types(
        self, expressions: Sequence[Expr], scans: Sequence[Scan]
    ) -> tuple[PgType, ...] | Unsupported:
        """Return the types of expressions over these tables; the refusal if no column can have one
        of them.
        """

    def values(self, expressions: Sequence[str]) -> tuple[Constant, ...] | Unsupported:
        """Return the values of expressions without columns; the refusal if the server cannot
        compute them.
        """

    def declare(self, block: Block) -> BlockRows:
        """Return the rows of an inner block as a table that later blocks can read."""
