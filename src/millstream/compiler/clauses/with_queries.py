"""WITH queries that a query may name, and its text together with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.relation import Relation
from millstream.compiler.clauses.clock import restore_clock_calls


@dataclass(frozen=True)
class Cte:
    """A WITH query: its syntax tree, and a function that builds its relation for one use."""

    node: exp.CTE
    relation: Callable[[], Relation]
    recursive: bool = False


Ctes = Mapping[str, Cte]


def is_materialized(cte: exp.CTE, query: exp.Expression) -> bool:
    """True if PostgreSQL computes a WITH query as a whole: as it says, or because it is used more
    than once.
    """
    said = cte.args.get("materialized")
    if said is not None:
        return bool(said)
    uses = (table for table in query.find_all(exp.Table) if not table.db)
    return sum(table.name == cte.alias for table in uses) > 1


def text_with(query: exp.Expression, ctes: Ctes) -> str:
    """Return the text of a query with all WITH queries it may name, so that the server can type it
    alone.
    """
    copy = query.copy()
    if ctes:
        listed = [cte.node.copy() for cte in ctes.values()]
        copy.set(
            "with_",
            exp.With(expressions=listed, recursive=any(cte.recursive for cte in ctes.values())),
        )
    return printed(restore_clock_calls(copy))
