"""Build a WITH query that reads itself as a Recursion.

    WITH RECURSIVE r AS (base UNION step)      base and step are built on their own
    FROM r in step                             a scan of the recursion itself, known by its depth

PostgreSQL guarantees that base comes first and does not read r, that step has the types of base,
and that step reads r once: not below an aggregate, not in a subquery of an expression, not on the
nullable side of a join.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sqlglot import exp

from millstream.algebra.expr import Expr
from millstream.algebra.positions import position_of
from millstream.algebra.relation import Named, Project, Recursion, Relation, Scan
from millstream.algebra.table import SelfReference
from millstream.algebra.types import Column, PgType
from millstream.compiler.clauses.recursive.search_cycle import check_types
from millstream.compiler.clauses.with_queries import Cte, Ctes, text_with


class RecursionBuilder(Protocol):
    """The part of the query builder that a recursion calls."""

    def fresh(self, wanted: str) -> str: ...

    def query(self, query: exp.Expression, ctes: Ctes) -> Relation: ...

    def with_queries(self, query: exp.Expression, outer: Ctes) -> Ctes: ...

    def types(self, select: str) -> tuple[PgType, ...]: ...


def reads_itself(cte: exp.CTE) -> bool:
    """Return True if a query of WITH RECURSIVE refers to itself."""
    tables = [
        table for table in cte.this.find_all(exp.Table) if not table.db and table.name == cte.alias
    ]
    return any(not _is_hidden(table, cte) for table in tables)


def _is_hidden(table: exp.Table, cte: exp.CTE) -> bool:
    """Return True if an inner WITH gives the name to another query."""
    around = table.parent
    while around is not None and around is not cte:
        clause = around.args.get("with_")
        if clause is not None and any(inner.alias == cte.alias for inner in clause.expressions):
            return True
        around = around.parent
    return False


def build_recursion(cte: exp.CTE, outer: Ctes, depth: int, builder: RecursionBuilder) -> Relation:
    """Build the rows of a query that reads itself, under its column names."""
    union = cte.this.unnest()
    known = builder.with_queries(union, outer)
    check_types(cte, lambda query: builder.types(text_with(query, known)))
    base = builder.query(union.this, known)
    names = _column_names(cte, base)
    text = _text_of_rows(cte, outer)
    table = SelfReference(
        _columns(text, len(names), builder),
        name=cte.alias,
        depth=depth,
        position=position_of(union.expression),
    )

    def itself() -> Relation:
        return _named(Scan(table, builder.fresh(cte.alias)), names, builder.fresh("q"))

    each_once = bool(union.args.get("distinct"))
    term = _without_distinct(union.expression) if each_once else union.expression
    step = builder.query(term, {**known, cte.alias: _itself(cte, itself)})
    recursion = Recursion(cte.alias, base, step, each_once, depth, text, builder.fresh("r"))
    return _named(recursion, names, builder.fresh("q"))


def _column_names(cte: exp.CTE, base: Relation) -> list[str]:
    """Return the column names of a recursion: those of its alias, then those of its base."""
    renamed = [column.name for column in cte.args["alias"].columns]
    return [*renamed, *(ref.column for ref in base.columns[len(renamed) :])]


def _text_of_rows(cte: exp.CTE, outer: Ctes) -> str:
    """Return a query that returns all rows of a recursion."""
    select = exp.select("*").from_(exp.table_(cte.alias, quoted=True))
    return text_with(select, {**outer, cte.alias: _itself(cte)})


def _columns(text: str, width: int, builder: RecursionBuilder) -> tuple[Column, ...]:
    """Ask the server for the types of a query's columns; name them c0, c1, ..."""
    names = [f"c{number}" for number in range(width)]
    types = builder.types(f"SELECT * FROM ({text}) AS u ({', '.join(names)})")
    return tuple(Column(name, type_) for name, type_ in zip(names, types, strict=False))


def _unbuilt() -> Relation:
    raise NotImplementedError("only its text is asked for")


def _itself(cte: exp.CTE, relation: Callable[[], Relation] = _unbuilt) -> Cte:
    return Cte(cte, relation, recursive=True)


def _without_distinct(term: exp.Expression) -> exp.Expression:
    """Return a term without its DISTINCT, which changes nothing below UNION."""
    select = term.unnest()
    distinct = select.args.get("distinct")
    if (
        not isinstance(select, exp.Select)
        or distinct is None
        or distinct.args.get("on") is not None
    ):
        return term
    plain = select.copy()
    plain.set("distinct", None)
    return plain


def _named(relation: Relation, names: list[str], alias: str) -> Relation:
    outputs = zip(names, relation.columns, strict=True)
    return Project(relation, tuple(Named(name, Expr(ref.sql)) for name, ref in outputs), alias)
