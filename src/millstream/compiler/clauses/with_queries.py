"""WITH queries: what a query may name besides tables, and its text with all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.relation import Relation
from millstream.compiler.clauses.clock import restore_clock_calls


@dataclass(frozen=True)
class Cte:
    """A WITH query: as it is written, and what it becomes wherever it is used."""

    node: exp.CTE
    relation: Callable[[], Relation]
    recursive: bool = False


Ctes = Mapping[str, Cte]


def text_with(query: exp.Expression, ctes: Ctes) -> str:
    """The text of a query with all WITH queries it may name, so that the server can type it on its own."""
    copy = query.copy()
    if ctes:
        listed = [cte.node.copy() for cte in ctes.values()]
        copy.set("with_", exp.With(expressions=listed, recursive=any(cte.recursive for cte in ctes.values())))
    return printed(restore_clock_calls(copy))
