"""Leave the hidden key of a stream table out of `SELECT *`.

A stream table whose rows have no key of their own has one more column, which tells its rows apart.
The server writes it out for `*`. It belongs to that stream table: a reader's rows have a key of
their own.
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.compiler.server import queries
from millstream.compiler.server.queries import Canonical
from millstream.postgres.connection import Connection
from millstream.store.names import ROW_ID


def without_row_ids(conn: Connection, canonical: Canonical) -> Canonical:
    """Return a query without the hidden keys in its select list; the same query if it has none.

    Under DISTINCT and GROUP BY they would decide which rows the result has, so there they stay, and
    are refused.
    """
    if all(column.name != ROW_ID for column in canonical.columns):
        return canonical
    tree = parsed(canonical.text)
    if not isinstance(tree, exp.Select) or tree.args.get("distinct") or tree.args.get("group"):
        return canonical
    kept = [item for item in tree.expressions if not _is_row_id(item)]
    if not kept or len(kept) == len(tree.expressions):
        return canonical
    tree.set("expressions", kept)
    return queries.reread(conn, printed(tree))


def _is_row_id(item: exp.Expression) -> bool:
    return isinstance(item, exp.Column) and item.name == ROW_ID
