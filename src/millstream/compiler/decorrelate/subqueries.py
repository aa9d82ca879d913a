"""Subqueries in expressions become joins.

    EXISTS (q)              a mark join: a column that is true if the row has a match
    x IN (q)                a mark join by x = y, in `quantified.py`
    x > ALL (q), ANY        min or max of q, joined, in `quantified.py`
    (SELECT max(y) ...)     q grouped by its correlation, joined, in `scalar.py`

If outer columns occur only in conjuncts of the subquery's WHERE, those conjuncts become the join
condition and the rest of the subquery stands alone. If they occur anywhere else, the subquery is
computed for all bindings: `bindings.py`.
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr, Ref, all_of, operands, unwrapped
from millstream.compiler.clauses.with_queries import Ctes
from millstream.compiler.decorrelate.attach import Host, KeyedSubquery, SubqueryBuilder
from millstream.compiler.decorrelate.bindings import Correlated
from millstream.compiler.decorrelate.correlation import correlation_equalities
from millstream.compiler.decorrelate.find import has_plain_correlation, outermost_subqueries
from millstream.compiler.decorrelate.quantified import (
    has_operator_mark,
    in_mark,
    operator_mark,
    quantified_comparison,
    rewrite_as_in,
)
from millstream.compiler.decorrelate.scalar import scalar_value
from millstream.compiler.decorrelate.scope import PLACEHOLDER, Scope
from millstream.compiler.decorrelate.syntax import select_expressions
from millstream.errors import Unsupported


class Subqueries:
    """Turns the subqueries of expressions into joins of a host."""

    def __init__(self, builder: SubqueryBuilder, ctes: Ctes) -> None:
        self.builder = builder
        self.ctes = ctes

    def condition(self, node: exp.Expression, host: Host) -> Expr:
        """Resolve a condition that only filters: a conjunct `x IN (q)` may be false where SQL says
        unknown.
        """
        node = unwrapped(node)
        if isinstance(node, exp.And):
            parts = [self.condition(part, host) for part in operands(node, exp.And)]
            return all_of(parts)
        if isinstance(node, exp.In) and node.args.get("query"):
            return in_mark(self, node, host, unknown_as_false=True)
        if isinstance(node, exp.Binary) and has_operator_mark(node):
            return operator_mark(self, node, host, unknown_as_false=True)
        return self.expression(node, host)

    def expression(self, node: exp.Expression, host: Host) -> Expr:
        """Resolve an expression; replace its subqueries by columns of joins of the host."""
        wrapper = exp.Paren(this=unwrapped(node).copy())
        columns = dict[Ref, Expr]()
        for number, subquery in enumerate(outermost_subqueries(wrapper)):
            placeholder = Ref(PLACEHOLDER, str(number))
            columns[placeholder] = self._join(subquery, host)
            subquery.replace(Expr(placeholder.sql).node)
        return host.scope.resolve(wrapper.this).substitute(columns)

    def in_calls(self, node: exp.Expression, host: Host) -> tuple[exp.Expression, dict[Ref, Expr]]:
        """Join the subqueries inside aggregate calls to the host.

        Return the expression with a placeholder for each, and the column that each placeholder
        stands for.
        """
        wrapper = exp.Paren(this=unwrapped(node).copy())
        columns = dict[Ref, Expr]()
        for call in self._aggregate_calls(wrapper):
            for subquery in outermost_subqueries(call):
                placeholder = Ref(PLACEHOLDER, f"in_call_{len(columns)}")
                columns[placeholder] = self._join(subquery, host)
                subquery.replace(Expr(placeholder.sql).node)
        return wrapper.this, columns

    def _aggregate_calls(self, node: exp.Expression) -> list[exp.Expression]:
        """Return the aggregate calls of an expression, without those of its subqueries."""
        if self.builder.aggregates.is_call(node):
            return [node]
        children = [] if isinstance(node, exp.Query) else list(node.iter_expressions())
        return [call for child in children for call in self._aggregate_calls(child)]

    def _join(self, node: exp.Expression, host: Host) -> Expr:
        """Join one subquery to the host; return the expression that stands for it and its operator."""
        if isinstance(node, exp.NEQ) and isinstance(node.expression, exp.All):
            mark = in_mark(self, rewrite_as_in(node), host, unknown_as_false=False)
            return Expr.parse(f"NOT ({mark.sql})")
        if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
            return in_mark(self, rewrite_as_in(node), host, unknown_as_false=False)
        if isinstance(node, exp.Exists):
            correlated = self.decorrelate(node.this, host)
            return host.mark_join(
                correlated.relation, correlated.correlations, self.builder.fresh("mark")
            )
        if isinstance(node, exp.In):
            return in_mark(self, node, host, unknown_as_false=False)
        if isinstance(node, exp.Subquery):
            _refuse_row_comparison(node)
            return scalar_value(self, node.this, host)
        return quantified_comparison(self, node, host)

    # -- correlation -----------------------------------------------------------------------

    def decorrelate(self, query: exp.Expression, host: Host) -> Correlated:
        """Decorrelate a subquery of which only the existence of rows matters, not how often each
        occurs.
        """
        query = query.this if isinstance(query, exp.Subquery) else query
        if not self._is_plain(query, host.scope):
            return self.builder.decorrelate(query, self.ctes, host.scope, host.outer_rows)
        assert isinstance(query, exp.Select)
        filtered = self.builder.from_where(query, host.scope, self.ctes)
        inner = Host(filtered.rows, filtered.scope)
        outputs = tuple(self.expression(item, inner) for item in select_expressions(query))
        return Correlated(inner.apply_joins(filtered.rows), outputs, filtered.correlations)

    def _is_plain(self, query: exp.Expression, scope: Scope) -> bool:
        """Return True if a query has only FROM, WHERE and a select list, correlated by conjuncts of
        WHERE.

        A plain DISTINCT is allowed: it changes nothing where only existence matters.
        """
        if (
            not isinstance(query, exp.Select)
            or query.args.get("from_") is None
            or self.builder.aggregates.group(query)
        ):
            return False
        distinct = query.args.get("distinct")
        if any(query.args.get(name) for name in ("limit", "offset", "with_")) or (
            distinct and distinct.args["on"]
        ):
            return False
        if any(
            item.find(exp.Window) or self.builder.sets.inside(item)
            for item in select_expressions(query)
        ):
            return False
        return has_plain_correlation(query, scope)

    def decorrelate_by_keys(
        self, query: exp.Expression, host: Host, *, exact: bool = False
    ) -> KeyedSubquery:
        """Decorrelate a subquery so that all its correlations are equalities.

        `exact`: the subquery must have exactly its own rows, so DISTINCT may not be ignored.
        """
        query = query.this if isinstance(query, exp.Subquery) else query
        correlated = self.decorrelate(query, host)
        pairs = correlation_equalities(correlated.correlations, correlated.relation)
        own = set(correlated.relation.columns)
        shows_outer_columns = any(not output.refs <= own for output in correlated.outputs)
        ignored_distinct = exact and query.args.get("distinct")
        if ignored_distinct or pairs is None or shows_outer_columns:
            correlated = self.builder.decorrelate(query, self.ctes, host.scope, host.outer_rows)
            pairs = correlation_equalities(correlated.correlations, correlated.relation)
        assert pairs is not None, f"not equalities: {correlated.correlations}"
        return KeyedSubquery(correlated, tuple(pairs))


def _refuse_row_comparison(node: exp.Subquery) -> None:
    """Raise Unsupported for `(a, b) = (SELECT x, y ...)`: a scalar subquery has one column."""
    comparison = node.parent
    if isinstance(comparison, exp.Binary) and isinstance(unwrapped(comparison.this), exp.Tuple):
        raise Unsupported.construct(
            f"the row {printed(comparison.this)} compared with a subquery",
            reason="Millstream does not maintain scalar subqueries with several columns yet.",
            way_round="Compare each column with a subquery of its own, or join the subquery.",
            node=comparison,
        )
