"""A WITH query that reads itself becomes a recursion.

    WITH RECURSIVE r AS (base UNION step)      base and step are built on their own
    FROM r in step                             a scan of the recursion itself, known by its depth

PostgreSQL has seen to it that base comes first and does not read r, that step reads it once, not below an aggregate,
in a subquery of an expression or on the optional side of a join, and that step has the types of base.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sqlglot import exp

from millstream.algebra.expr import Expr
from millstream.algebra.relation import Named, Project, Recursion, Relation, Scan
from millstream.algebra.table import Table
from millstream.algebra.types import Column, PgType
from millstream.compiler.clauses.recursive.search_cycle import check_types
from millstream.compiler.clauses.with_queries import Cte, Ctes, text_with


class RecursionBuilder(Protocol):
    """What is asked of the builder around it."""

    def fresh(self, wanted: str) -> str: ...

    def query(self, query: exp.Expression, ctes: Ctes) -> Relation: ...

    def with_queries(self, query: exp.Expression, outer: Ctes) -> Ctes: ...

    def types(self, select: str) -> tuple[PgType, ...]: ...


def reads_itself(cte: exp.CTE) -> bool:
    """Does a query of WITH RECURSIVE name itself?"""
    named = (one for one in cte.this.find_all(exp.Table) if not one.db and one.name == cte.alias)
    return any(not _hidden(one, cte) for one in named)


def _hidden(table: exp.Table, cte: exp.CTE) -> bool:
    """Does a WITH further in give the name to something else?"""
    around = table.parent
    while around is not None and around is not cte:
        clause = around.args.get("with_")
        if clause is not None and any(one.alias == cte.alias for one in clause.expressions):
            return True
        around = around.parent
    return False


def build_recursion(cte: exp.CTE, outer: Ctes, depth: int, builder: RecursionBuilder) -> Relation:
    """The rows of a query that reads itself, under its names."""
    union = cte.this.unnest()
    known = builder.with_queries(union, outer)
    check_types(cte, lambda query: builder.types(text_with(query, known)))
    base = builder.query(union.this, known)
    bindings = [column.name for column in cte.args["alias"].columns]
    names = [*bindings, *(ref.column for ref in base.columns[len(bindings) :])]
    text = text_with(exp.select("*").from_(exp.table_(cte.alias, quoted=True)), {**outer, cte.alias: _itself(cte)})
    listed = ", ".join(f"c{n}" for n in range(len(names)))
    types = builder.types(f"SELECT * FROM ({text}) AS u ({listed})")
    columns = tuple(Column(f"c{n}", type_) for n, type_ in enumerate(types))
    table = Table(0, "itself", cte.alias, columns, recursion=depth)

    def itself() -> Relation:
        return _named(Scan(table, builder.fresh(cte.alias)), names, builder.fresh("q"))

    each_once = bool(union.args.get("distinct"))
    term = _each_once(union.expression) if each_once else union.expression
    step = builder.query(term, {**known, cte.alias: _itself(cte, itself)})
    return _named(
        Recursion(cte.alias, base, step, each_once, depth, text, builder.fresh("r")), names, builder.fresh("q")
    )


def _unbuilt() -> Relation:
    raise NotImplementedError("only its text is asked for")


def _itself(cte: exp.CTE, relation: Callable[[], Relation] = _unbuilt) -> Cte:
    return Cte(cte, relation, recursive=True)


def _each_once(term: exp.Expression) -> exp.Expression:
    """Without a DISTINCT of its own: where UNION follows it says nothing."""
    select = term.unnest()
    distinct = select.args.get("distinct")
    if not isinstance(select, exp.Select) or distinct is None or distinct.args.get("on") is not None:
        return term
    plain = select.copy()
    plain.set("distinct", None)
    return plain


def _named(relation: Relation, names: list[str], alias: str) -> Relation:
    outputs = zip(names, relation.columns, strict=True)
    return Project(relation, tuple(Named(name, Expr(ref.sql)) for name, ref in outputs), alias)
