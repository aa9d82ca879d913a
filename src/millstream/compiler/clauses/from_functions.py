"""Function calls in FROM: the call of an item, and the names of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.algebra.relation import DEFINED, ROWS_FROM
from millstream.algebra.special_calls import SpecialCall


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
        calls = [_member(member) for member in together]
        name = exp.to_identifier(ROWS_FROM, quoted=True)
        return exp.Anonymous(this=name, expressions=[call.copy() for call in calls if call])
    if isinstance(item, exp.Table):
        return _qualified(item)
    inner = item.this if isinstance(item, exp.Lateral) else item
    return inner if isinstance(inner, exp.Expression) else None


def _member(member: exp.Expression) -> exp.Expression | None:
    """Return a call of ROWS FROM, with its list of column definitions if it has one."""
    if not isinstance(member, exp.Table):
        return member
    call = _qualified(member)
    definitions = member.args.get("alias")
    return _with_definitions(call, definitions.columns) if call and definitions else call


def _with_definitions(
    call: exp.Expression, definitions: Sequence[exp.Expression]
) -> exp.Expression:
    """Return a call with a list of column definitions, f(x) AS (a int), as a call that says both."""
    listed = exp.Literal.string(", ".join(map(printed, definitions)))
    name = exp.to_identifier(DEFINED, quoted=True)
    return exp.Anonymous(this=name, expressions=[call.copy(), listed])


def _qualified(item: exp.Table) -> exp.Expression | None:
    """Return the call of a FROM item with its schema, which the parser keeps beside the call and
    not in it.
    """
    inner, schema = item.this, item.args.get("db")
    if isinstance(inner, exp.Func) and schema is not None:
        return exp.Dot(this=schema.copy(), expression=inner.copy())
    return inner if isinstance(inner, exp.Expression) else None


def function_item(item: exp.Expression) -> FunctionItem:
    """Return the function call of a FROM item."""
    call = _call(item)
    assert call is not None
    alias = item.args.get("alias") or call.args.get("alias")
    assert alias is not None, f"the server names every function in FROM: {item}"
    bare = call.copy()
    for name in ("alias", "offset", "joins"):
        if bare.args.get(name):
            bare.set(name, None)
    if any(isinstance(column, exp.ColumnDef) for column in alias.columns):
        bare = _with_definitions(bare, alias.columns)
    # The parser keeps the ordinality column of unnest beside the others.
    ordinality = call.args.get("offset") if isinstance(call, exp.Unnest) else None
    names = [column.name for column in (*alias.columns, *filter(None, [ordinality]))]
    own = call.columns if isinstance(call, SpecialCall) else ()
    numbered = bool(item.args.get("ordinality")) or ordinality is not None
    return FunctionItem(alias.name, (*names, *own[len(names) :]), bare, numbered)
