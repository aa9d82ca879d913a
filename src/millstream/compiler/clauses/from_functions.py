"""Functions in FROM, as the syntax tree has them: what is called, and what its columns are called."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.relation import ROWS_FROM
from millstream.errors import Unsupported


@dataclass(frozen=True)
class FunctionItem:
    """A call in FROM."""

    alias: str
    columns: tuple[str, ...]
    call: exp.Expression
    numbered: bool


def is_function_item(item: exp.Expression) -> bool:
    """Is a FROM item the call of a function, or of several?"""
    inner = _inner(item)
    return isinstance(inner.expression if isinstance(inner, exp.Dot) else inner, exp.Func)


def _inner(item: exp.Expression) -> exp.Expression | None:
    """What is called; of ROWS FROM, as if by one call."""
    together = item.args.get("rows_from")
    if together:
        calls = [_qualified(one) if isinstance(one, exp.Table) else one for one in together]
        name = exp.to_identifier(ROWS_FROM.strip('"'), quoted=True)
        return exp.Anonymous(this=name, expressions=[call.copy() for call in calls if call])
    if isinstance(item, exp.Table):
        return _qualified(item)
    inner = item.this if isinstance(item, exp.Lateral) else item
    return inner if isinstance(inner, exp.Expression) else None


def _qualified(item: exp.Table) -> exp.Expression | None:
    """Return the call of a FROM item with its schema, which the parser keeps beside the call and not in it."""
    inner, schema = item.this, item.args.get("db")
    if isinstance(inner, exp.Func) and schema is not None:
        return exp.Dot(this=schema.copy(), expression=inner.copy())
    return inner if isinstance(inner, exp.Expression) else None


def function_item(item: exp.Expression) -> FunctionItem:
    """What a FROM item calls."""
    inner = _inner(item)
    assert inner is not None
    alias = item.args.get("alias") or inner.args.get("alias")
    columns = [column.name for column in alias.columns] if alias else []
    numbered = bool(item.args.get("ordinality"))
    if isinstance(inner, exp.Unnest) and inner.args.get("offset"):
        columns.append(inner.args["offset"].name)
        numbered = True
    if alias is None or not columns or any(not isinstance(one, exp.Identifier) for one in alias.columns):
        raise Unsupported.construct(
            "a function in FROM with a list of column definitions",
            reason="Millstream does not maintain it yet.",
            way_round="Use a function that tells its columns itself.",
        )
    call = inner.copy()
    for name in ("alias", "offset"):
        if call.args.get(name):
            call.set(name, None)
    return FunctionItem(alias.name, tuple(columns), call, numbered)
