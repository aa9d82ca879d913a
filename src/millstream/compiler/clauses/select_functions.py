"""Set-returning functions in a select list: they move to FROM.

SELECT id, unnest(list), unnest(other)   ->   FROM t, LATERAL ROWS FROM (unnest(list), unnest(other)) AS s (f0, f1)

Several calls advance together, and the shorter ones are filled with NULLs, as ROWS FROM does. Calls in
the arguments of others come first, each level in step:

SELECT unnest(f(t.x))   ->   FROM t, LATERAL f(t.x) AS s (f0), LATERAL unnest(s.f0) AS s_2 (f0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, transform
from millstream.algebra.relation import ROWS_FROM, Expand, Expansion, Relation
from millstream.algebra.table import quoted
from millstream.compiler.clauses.groups.grouping import function_name
from millstream.errors import Unsupported


class SetReturningCalls:
    """The calls of a query that return sets; `names` asks the server, and tells which of them
    return rows.
    """

    def __init__(
        self, names: Callable[[], Mapping[str, bool]], fresh: Callable[[str], str]
    ) -> None:
        self.names = names
        self.fresh = fresh

    def expand(
        self, relation: Relation, expressions: Sequence[Expr]
    ) -> tuple[Relation, list[Expr]]:
        """Return the rows that the calls in expressions produce, and the expressions over those
        rows.
        """
        exprs = list(expressions)
        while calls := list(
            dict.fromkeys(call for expr in exprs for call in self._innermost(expr.tree))
        ):
            relation, exprs = self._expand_calls(relation, exprs, calls)
        return relation, exprs

    def _expand_calls(
        self, relation: Relation, exprs: Sequence[Expr], calls: Sequence[Expr]
    ) -> tuple[Relation, list[Expr]]:
        """Call some functions in step, for each row."""
        self._refuse(calls)
        names = tuple(f"f{number}" for number in range(len(calls)))
        expansion = Expansion(self.fresh("set"), names, _in_step(calls))
        expand = Expand(relation, expansion, self.fresh("x"))
        results = dict(zip(calls, expand.columns[len(relation.columns) :], strict=True))
        carried = dict(zip(relation.columns, expand.columns, strict=False))
        return expand, [self._over(expr, results, carried) for expr in exprs]

    def _refuse(self, calls: Sequence[Expr]) -> None:
        """Raise Unsupported for functions that return rows."""
        if rows := [call for call in calls if self.names()[function_name(call.tree)]]:
            raise Unsupported.construct(
                "a function in the select list that returns rows",
                reason="Its type is a row's.",
                way_round="Call it in FROM, and name its columns.",
                node=rows[0],
            )

    def _over(
        self, expression: Expr, results: Mapping[Expr, Ref], carried: Mapping[Ref, Ref]
    ) -> Expr:
        """Return an expression with its calls and columns replaced by the columns that hold their
        values.
        """

        def replace(node: exp.Expression) -> exp.Expression:
            result = results.get(Expr.of(node)) if self._is_call(node) else None
            return Expr(result.sql).node if result else node

        made = set(results.values())
        without_calls = Expr.of(transform(expression.tree, replace))
        return without_calls.substitute(
            {old: Expr(new.sql) for old, new in carried.items() if old not in made}
        )

    def inside(self, node: exp.Expression) -> bool:
        """Return True if an expression contains a set-returning call."""
        return any(True for _ in self._innermost(node))

    def _is_call(self, node: exp.Expression) -> bool:
        return isinstance(node, exp.Func | exp.Dot) and function_name(node) in self.names()

    def _innermost(self, node: exp.Expression) -> Iterable[Expr]:
        """Yield the calls without another one in their arguments: PostgreSQL calls them first."""
        if isinstance(node, exp.Select):
            return
        inner = [call for child in node.iter_expressions() for call in self._innermost(child)]
        if inner or not self._is_call(node):
            yield from inner
        else:
            yield Expr.of(node)


def _in_step(calls: Sequence[Expr]) -> Expr:
    return (
        calls[0]
        if len(calls) == 1
        else Expr(f"{quoted(ROWS_FROM)}({', '.join(call.sql for call in calls)})")
    )
