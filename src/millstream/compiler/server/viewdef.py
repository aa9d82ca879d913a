"""A query that the server printed, in a form that it reads again.

Of CYCLE it prints 'Y'::text where it reads text 'Y'; of a recursive table that has other names for its columns it
prints those that SEARCH and CYCLE add too, which it does not let anybody name. Of BETWEEN and IN it prints parentheses
that it does not keep: `parentheses.py`.
"""

from __future__ import annotations

import re

from sqlglot import exp

from millstream.algebra.dialect import CYCLE, SEARCH, parsed, printed
from millstream.compiler.server.parentheses import remove_parentheses

_CLAUSE = re.compile(r"^ *\) (SEARCH|CYCLE) ", re.MULTILINE)


def readable_text(text: str) -> str:
    """The text as it is, but for what the server could not read."""
    text = remove_parentheses(text)
    if not _CLAUSE.search(text):
        return text
    tree = parsed(text)
    for cte in tree.find_all(exp.CTE):
        if cte.args.get(SEARCH) or cte.args.get(CYCLE):
            _rename_own_columns_only(cte)
    return printed(tree)


def _rename_own_columns_only(cte: exp.CTE) -> None:
    own = len(recursive_columns(cte))
    query = cte.parent.parent if cte.parent else None
    tables = query.find_all(exp.Table) if query else ()
    for alias in (one.args.get("alias") for one in tables if not one.db and one.name == cte.alias):
        if alias is not None and len(alias.columns) > own:
            alias.set("columns", alias.columns[:own])


def recursive_columns(cte: exp.CTE) -> list[str]:
    """The names of the columns of a recursive query, without those that are added to them."""
    bindings = [column.name for column in cte.args["alias"].columns]
    base = cte.this.unnest().this.unnest()
    if isinstance(base, exp.Values):
        own = [f"column{n + 1}" for n in range(len(base.expressions[0].expressions))]
    else:
        own = [one.alias_or_name for one in base.expressions]
    return [*bindings, *own[len(bindings) :]]
