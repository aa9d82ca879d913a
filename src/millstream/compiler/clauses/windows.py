"""Window functions of a select list become Window nodes, one for each set of PARTITION BY.

sum(x) OVER (PARTITION BY a), rank() OVER (PARTITION BY b ORDER BY y)
    Window by a: sum ...           the second over the rows of the first
    Window by b: rank ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, transform, unwrapped
from millstream.algebra.relation import Named, Project, Relation, Window


def build_windows(
    relation: Relation, expressions: Sequence[Expr], fresh: Callable[[str], str]
) -> tuple[Relation, list[Expr]]:
    """Compute the window calls of expressions; return the rows with the results, and the
    expressions over them.
    """
    exprs = list(expressions)
    if _calls(exprs):
        relation, exprs = _project_used(relation, exprs, fresh)
    while calls := _calls(exprs):
        keys = _keys(calls[0])
        same_keys = dict.fromkeys(Expr.of(call) for call in calls if _keys(call) == keys)
        named = tuple(Named(f"w{number}", call) for number, call in enumerate(same_keys))
        window = Window(relation, tuple(sorted(keys, key=str)), named, fresh("w"))
        exprs = [_over(expr, window) for expr in exprs]
        relation = window
    return relation, exprs


def _project_used(
    relation: Relation, expressions: list[Expr], fresh: Callable[[str], str]
) -> tuple[Relation, list[Expr]]:
    """Project the rows to the columns that are used: a window stores all columns of its input."""
    refs = sorted({ref for expr in expressions for ref in expr.refs})
    project = Project(
        relation, tuple(Named(f"p{n}", Expr(ref.sql)) for n, ref in enumerate(refs)), fresh("p")
    )
    columns = {ref: Expr(new.sql) for ref, new in zip(refs, project.columns, strict=True)}
    return project, [expr.substitute(columns) for expr in expressions]


def inline_named_windows(select: exp.Select) -> exp.Select:
    """Replace each `OVER w` and `OVER (w ORDER BY ...)` by the whole window, in place."""
    named = {window.name: window for window in select.args.get("windows") or ()}
    for call in list(select.find_all(exp.Window)):
        if call.find_ancestor(exp.Select) is select and call not in named.values():
            _inline_window(call, named)
    return select


def _inline_window(call: exp.Window, named: Mapping[str, exp.Window]) -> None:
    """Give a call what it takes from the windows that it names: one may extend another."""
    while alias := call.args.get("alias"):
        definition = named[alias.name]
        call.set("alias", definition.args.get("alias"))
        for part in _WINDOW_PARTS:
            inherited = definition.args.get(part)
            if inherited and not call.args.get(part):
                call.set(part, _copied(inherited))


_WINDOW_PARTS = ("partition_by", "order", "spec")


def _copied(part: exp.Expr | list[exp.Expr]) -> exp.Expr | list[exp.Expr]:
    return [one.copy() for one in part] if isinstance(part, list) else part.copy()


def _calls(expressions: Sequence[Expr]) -> list[exp.Window]:
    return [call for expr in expressions for call in expr.tree.find_all(exp.Window)]


def _keys(call: exp.Window) -> frozenset[Expr]:
    return frozenset(Expr.of(unwrapped(key)) for key in call.args.get("partition_by") or ())


def _over(expression: Expr, window: Window) -> Expr:
    """Return an expression over the rows of a window node: its calls and the input's columns become
    columns of it.
    """
    results = {call.expr.sql: Expr.ref(window.alias, call.name) for call in window.calls}

    def replace(node: exp.Expression) -> exp.Expression:
        result = results.get(Expr.of(node).sql) if isinstance(node, exp.Window) else None
        return result.node if result else node

    without_calls = Expr.of(transform(expression.tree, replace))
    made = {Ref(window.alias, call.name) for call in window.calls}
    carried = zip(window.input.columns, window.columns, strict=False)
    return without_calls.substitute({old: Expr(new.sql) for old, new in carried if old not in made})
