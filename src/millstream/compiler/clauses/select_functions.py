"""Set-returning functions in a select list: they move to FROM.

SELECT id, unnest(list), unnest(other)   ->   FROM t, LATERAL ROWS FROM (unnest(list), unnest(other)) AS s (f0, f1)

Several calls advance together, and the shorter ones are filled with NULLs, as ROWS FROM does.
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
        calls = list(
            dict.fromkeys(call for expr in expressions for call in self._outermost(expr.tree))
        )
        if not calls:
            return relation, list(expressions)
        self._refuse(calls)
        names = tuple(f"f{number}" for number in range(len(calls)))
        expansion = Expansion(self.fresh("set"), names, _in_step(calls))
        expand = Expand(relation, expansion, self.fresh("x"))
        results = dict(zip(calls, expand.columns[len(relation.columns) :], strict=True))
        carried = dict(zip(relation.columns, expand.columns, strict=False))
        return expand, [self._over(expr, results, carried) for expr in expressions]

    def _refuse(self, calls: Sequence[Expr]) -> None:
        """Raise Unsupported for functions that return rows, and for nested calls."""
        if rows := [call for call in calls if self.names()[function_name(call.tree)]]:
            raise Unsupported.construct(
                "a function in the select list that returns rows",
                reason="Its type is a row's.",
                way_round="Call it in FROM, and name its columns.",
                node=rows[0],
            )
        if nested := [call for call in calls if self._inside(call.tree)]:
            raise Unsupported.construct(
                "a set-returning function inside another in the select list",
                reason="Millstream does not maintain it yet.",
                way_round="Call the inner one in FROM.",
                node=nested[0],
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
        return any(True for _ in self._outermost(node))

    def _is_call(self, node: exp.Expression) -> bool:
        return isinstance(node, exp.Func | exp.Dot) and function_name(node) in self.names()

    def _outermost(self, node: exp.Expression) -> Iterable[Expr]:
        if self._is_call(node):
            yield Expr.of(node)
        elif not isinstance(node, exp.Select):
            for child in node.iter_expressions():
                yield from self._outermost(child)

    def _inside(self, call: exp.Expression) -> bool:
        arguments = call.expression if isinstance(call, exp.Dot) else call
        return any(True for child in arguments.iter_expressions() for _ in self._outermost(child))


def _in_step(calls: Sequence[Expr]) -> Expr:
    return (
        calls[0]
        if len(calls) == 1
        else Expr(f"{quoted(ROWS_FROM)}({', '.join(call.sql for call in calls)})")
    )
