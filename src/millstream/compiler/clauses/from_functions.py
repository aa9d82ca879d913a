"""Function calls in FROM: the call of an item, and the names of its columns."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.relation import ROWS_FROM
from millstream.errors import Unsupported


@dataclass(frozen=True)
class FunctionItem:
    """A function call in FROM; `numbered`: WITH ORDINALITY, whose column is the last."""

    alias: str
    columns: tuple[str, ...]
    call: exp.Expression
    numbered: bool


def is_function_item(item: exp.Expression) -> bool:
    """Return True if a FROM item is a function call or ROWS FROM."""
    inner = _call(item)
    return isinstance(inner.expression if isinstance(inner, exp.Dot) else inner, exp.Func)


def _call(item: exp.Expression) -> exp.Expression | None:
    """Return the call of a FROM item; the calls of ROWS FROM as arguments of one call."""
    together = item.args.get("rows_from")
    if together:
        calls = [_qualified(call) if isinstance(call, exp.Table) else call for call in together]
        name = exp.to_identifier(ROWS_FROM, quoted=True)
        return exp.Anonymous(this=name, expressions=[call.copy() for call in calls if call])
    if isinstance(item, exp.Table):
        return _qualified(item)
    inner = item.this if isinstance(item, exp.Lateral) else item
    return inner if isinstance(inner, exp.Expression) else None


def _qualified(item: exp.Table) -> exp.Expression | None:
    """Return the call of a FROM item with its schema, which the parser keeps beside the call and
    not in it.
    """
    inner, schema = item.this, item.args.get("db")
    if isinstance(inner, exp.Func) and schema is not None:
        return exp.Dot(this=schema.copy(), expression=inner.copy())
    return inner if isinstance(inner, exp.Expression) else None


def function_item(item: exp.Expression) -> FunctionItem:
    """Return the function call of a FROM item; raise Unsupported if it has a column definition
    list.
    """
    call = _call(item)
    assert call is not None
    alias = item.args.get("alias") or call.args.get("alias")
    columns = list(alias.columns) if alias else []
    # The parser keeps the ordinality column of unnest beside the others.
    ordinality = call.args.get("offset") if isinstance(call, exp.Unnest) else None
    names = [column.name for column in (*columns, *filter(None, [ordinality]))]
    if (
        alias is None
        or not names
        or any(not isinstance(column, exp.Identifier) for column in columns)
    ):
        raise Unsupported.construct(
            "a function in FROM with a list of column definitions",
            reason="Millstream does not maintain it yet.",
            way_round="Use a function whose result columns are declared.",
            node=call,
        )
    bare = call.copy()
    for name in ("alias", "offset"):
        if bare.args.get(name):
            bare.set(name, None)
    numbered = bool(item.args.get("ordinality")) or ordinality is not None
    return FunctionItem(alias.name, tuple(names), bare, numbered)
