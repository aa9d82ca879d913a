"""Functions in FROM, as the syntax tree has them: what is called, and what its columns are called."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millstream.errors import Unsupported


@dataclass(frozen=True)
class Called:
    """A call in FROM."""

    alias: str
    columns: tuple[str, ...]
    call: exp.Expression
    numbered: bool


def is_call(item: exp.Expression) -> bool:
    """Is a FROM item the call of a function?"""
    inner = item.this if isinstance(item, exp.Lateral | exp.Table) else item
    return isinstance(inner, exp.Func) and not isinstance(inner, exp.Subquery)


def called(item: exp.Expression) -> Called:
    """What a FROM item calls."""
    inner = item.this if isinstance(item, exp.Lateral | exp.Table) else item
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
    return Called(alias.name, tuple(columns), call, numbered)
