"""Subqueries in expressions become joins.

    EXISTS (q)              a mark join: does the row meet anything?
    x IN (q)                the same by x = y: `quantified.py`
    x > ALL (q), ANY        the least or greatest of q, joined: there too
    (SELECT max(y) ...)     the groups of q by what ties it to the row, joined: `scalar.py`

A correlated subquery is tied to the row by the conjuncts of its WHERE that mention it; they become the join's
condition. What is left of the subquery stands alone, and is kept by a block of its own where it groups. One that
mentions the row anywhere else is computed for all the values that it may be given: `given.py`.
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.expr import Expr, Ref, operands, unwrapped
from millstream.compiler.clauses.with_queries import Ctes
from millstream.compiler.decorrelate.attach import Host, KeyedSubquery, SubqueryBuilder
from millstream.compiler.decorrelate.bindings import Correlated, correlation_equalities, select_expressions
from millstream.compiler.decorrelate.find import has_plain_correlation, outermost_subqueries
from millstream.compiler.decorrelate.quantified import in_mark, quantified_comparison, rewrite_as_in
from millstream.compiler.decorrelate.scalar import scalar_value
from millstream.compiler.decorrelate.scope import PLACE, Scope
from millstream.errors import Unsupported


class Subqueries:
    """Turns the subqueries of one expression after the other into joins of a host."""

    def __init__(self, builder: SubqueryBuilder, ctes: Ctes) -> None:
        self.builder = builder
        self.ctes = ctes

    def condition(self, node: exp.Expression, host: Host) -> Expr:
        """A condition: where it is a plain IN, unknown is as good as false."""
        node = unwrapped(node)
        if isinstance(node, exp.And):
            parts = [self.condition(part, host) for part in operands(node, exp.And)]
            return Expr.parse(" AND ".join(f"({part.sql})" for part in parts))
        if isinstance(node, exp.In) and node.args.get("query"):
            return in_mark(self, node, host, strict=True)
        return self.expression(node, host)

    def expression(self, node: exp.Expression, host: Host) -> Expr:
        """An expression with its subqueries replaced by columns of joins."""
        wrapper, joined = exp.Paren(this=unwrapped(node).copy()), dict[Ref, Expr]()
        for number, found in enumerate(outermost_subqueries(wrapper)):
            place = Ref(PLACE, str(number))
            joined[place] = self._joined(found, host)
            found.replace(Expr(place.sql).node)
        return host.scope.resolve(wrapper.this).substitute(joined)

    def in_calls(self, node: exp.Expression, host: Host) -> tuple[exp.Expression, dict[Ref, Expr]]:
        """The same with places for the subqueries inside aggregates, and the columns of joins that stand there."""
        wrapper, joined = exp.Paren(this=unwrapped(node).copy()), dict[Ref, Expr]()
        for call in self._calls(wrapper):
            for found in outermost_subqueries(call):
                place = Ref(PLACE, f"in_call_{len(joined)}")
                joined[place] = self._joined(found, host)
                found.replace(Expr(place.sql).node)
        return wrapper.this, joined

    def _calls(self, node: exp.Expression) -> list[exp.Expression]:
        """The aggregate calls of an expression, not those of its subqueries."""
        if self.builder.aggregates.called(node):
            return [node]
        inside = [] if isinstance(node, exp.Query) else list(node.iter_expressions())
        return [call for child in inside for call in self._calls(child)]

    def _joined(self, node: exp.Expression, host: Host) -> Expr:
        if isinstance(node, exp.NEQ) and isinstance(node.expression, exp.All):
            return Expr.parse(f"NOT ({in_mark(self, rewrite_as_in(node), host, strict=False).sql})")
        if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
            return in_mark(self, rewrite_as_in(node), host, strict=False)
        if isinstance(node, exp.Exists):
            correlated = self.correlated(node.this, host)
            return host.met(correlated.relation, correlated.correlations, self.builder.fresh("mark"))
        if isinstance(node, exp.In):
            return in_mark(self, node, host, strict=False)
        if isinstance(node, exp.Subquery):
            _refuse_rows(node)
            return scalar_value(self, node.this, host)
        return quantified_comparison(self, node, host)

    # -- ties ------------------------------------------------------------------------------

    def correlated(self, query: exp.Expression, host: Host) -> Correlated:
        """The subquery on its own, and its ties to the row around it."""
        query = query.this if isinstance(query, exp.Subquery) else query
        if not self._plain(query, host.scope):
            return self.builder.correlated(query, self.ctes, host.scope, host.around)
        assert isinstance(query, exp.Select)
        scope = Scope(host.scope, query)
        relation, outside = self.builder.from_where(query, scope, self.ctes)
        inner = Host(relation, scope)
        outputs = tuple(self.expression(item, inner) for item in select_expressions(query))
        return Correlated(inner.built(relation), outputs, tuple(outside))

    def _plain(self, query: exp.Expression, scope: Scope) -> bool:
        """Nothing but FROM, WHERE and a select list; DISTINCT changes nothing where only existence is asked."""
        if not isinstance(query, exp.Select) or query.args.get("from_") is None or self.builder.aggregates.group(query):
            return False
        distinct = query.args.get("distinct")
        extra = any(query.args.get(name) for name in ("limit", "offset", "with_")) or (distinct and distinct.args["on"])
        rows = any(item.find(exp.Window) or self.builder.sets.inside(item) for item in select_expressions(query))
        return not extra and not rows and has_plain_correlation(query, scope)

    def keyed(self, query: exp.Expression, host: Host, *, exact: bool = False) -> KeyedSubquery:
        """A subquery that is tied by equalities alone, of which it has one side; `exact`ly as many rows."""
        query = query.this if isinstance(query, exp.Subquery) else query
        correlated = self.correlated(query, host)
        pairs = correlation_equalities(correlated.correlations, correlated.relation)
        own = set(correlated.relation.columns)
        distinct = exact and query.args.get("distinct")
        if distinct or pairs is None or any(not output.refs <= own for output in correlated.outputs):
            correlated = self.builder.correlated(query, self.ctes, host.scope, host.around)
            pairs = correlation_equalities(correlated.correlations, correlated.relation)
        assert pairs is not None, f"not equalities: {correlated.correlations}"
        return KeyedSubquery(correlated, tuple(pairs))


def _refuse_rows(node: exp.Subquery) -> None:
    """A subquery that stands for a value has one column."""
    asking = node.parent
    if isinstance(asking, exp.Binary) and isinstance(unwrapped(asking.this), exp.Tuple):
        raise Unsupported.construct(
            f"the row {printed(asking.this)} compared with a subquery",
            reason="Millstream does not maintain a subquery that stands for several values yet.",
            way_round="Compare each column with a subquery of its own, or join the subquery.",
        )
