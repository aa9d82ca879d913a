"""Correct the text of pg_get_viewdef so that the server can read it again.

The server prints three things that it does not accept, or that it prints differently after reading
them:

- 'Y'::text in CYCLE, where it accepts only 'Y';
- aliases for the columns that SEARCH and CYCLE add to a recursive table, which it does not allow to be named;
- parentheses for BETWEEN and IN that it drops: `parentheses.py`.
"""

from __future__ import annotations

import re

from sqlglot import exp

from millstream.algebra.dialect import CYCLE, SEARCH, parsed, printed
from millstream.compiler.server.parentheses import remove_parentheses

_CLAUSE = re.compile(r"^ *\) (SEARCH|CYCLE) ", re.MULTILINE)


def comparable_text(text: str) -> str:
    """Return a text in which only its meaning is left: the space before VALUES depends on where
    they come from.
    """
    return text.replace("( VALUES", "(VALUES")


def readable_text(text: str) -> str:
    """Return a text that the server can read; unchanged if it already is."""
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
    for alias in (
        table.args.get("alias") for table in tables if not table.db and table.name == cte.alias
    ):
        if alias is not None and len(alias.columns) > own:
            alias.set("columns", alias.columns[:own])


def recursive_columns(cte: exp.CTE) -> list[str]:
    """Return the column names of a recursive query, without those that SEARCH and CYCLE add."""
    renamed = [column.name for column in cte.args["alias"].columns]
    base = cte.this.unnest().this.unnest()
    if isinstance(base, exp.Values):
        own = [f"column{n + 1}" for n in range(len(base.expressions[0].expressions))]
    else:
        own = [item.alias_or_name for item in base.expressions]
    return [*renamed, *own[len(renamed) :]]
