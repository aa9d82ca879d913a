"""Write whole rows of tables as columns that a derived table shows.

    SELECT count(k.*) FROM t LEFT JOIN k ON k.id = t.k
    SELECT count(k.__ms_row) FROM t
    LEFT JOIN (SELECT k.id, k.name, ROW(k.id, k.name)::public.k AS __ms_row FROM public.k) AS k ON k.id = t.k

The row is NULL where the join extends by NULLs, as k.* is, and has NULL columns where the table has
them. The cast makes the type of the rows a definition that the query depends on: a column that is
added to the table makes a new plan. Rows of subqueries and functions have a type that no column can
have, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.table import quoted
from millstream.compiler.server import queries
from millstream.compiler.server.queries import Canonical
from millstream.errors import BadQuery
from millstream.postgres import relations
from millstream.postgres.connection import Connection
from millstream.store.names import ROW_ID

ROW = "__ms_row"


def expand_whole_rows(conn: Connection, canonical: Canonical) -> Canonical:
    """Return a query whose whole rows of tables are columns; the same query if it has none."""
    if ".*" not in canonical.text:
        return canonical
    tree = parsed(canonical.text)
    rows = [column for column in tree.find_all(exp.Column) if isinstance(column.this, exp.Star)]
    for row in rows:
        _expand(conn, row)
    if printed(tree) == printed(parsed(canonical.text)):
        return canonical
    try:
        return queries.reread(conn, printed(tree))
    except BadQuery:
        # A derived table has no primary key that GROUP BY could tell columns from.
        return canonical


def _expand(conn: Connection, row: exp.Column) -> None:
    """Make a whole row a column of its item of FROM, in place; leave it if that is no table."""
    item = _item_of(row)
    if isinstance(item, exp.Table):
        derived = _derived(conn, item)
        if derived is None:
            return
        item.replace(derived)
    elif not _shows_row(item):
        return
    row.replace(exp.column(ROW, row.table, quoted=True))


def _item_of(row: exp.Column) -> exp.Expression | None:
    """Return the item of FROM that a whole row is of."""
    around = row.parent_select
    while around is not None:
        for item in _items(around):
            if item.alias_or_name == row.table:
                return item
        around = around.parent_select
    return None


def _items(select: exp.Expression) -> Iterator[exp.Expression]:
    """Yield the items of FROM; those of a join with column names of its own are out of reach."""
    clause = select.args.get("from_")
    first = [clause.this] if clause else []
    for item in (*first, *(join.this for join in select.args.get("joins") or ())):
        yield from _inside(item)


def _inside(item: exp.Expression) -> Iterator[exp.Expression]:
    queries_alone = exp.Select | exp.SetOperation | exp.Values
    is_join = isinstance(item, exp.Subquery) and not isinstance(item.this, queries_alone)
    if not is_join:
        yield item
    elif not item.alias:
        yield from _inside(item.this)
    for join in item.args.get("joins") or ():
        yield from _inside(join.this)


def _shows_row(item: exp.Expression | None) -> bool:
    query = item.this if isinstance(item, exp.Subquery) else None
    return isinstance(query, exp.Select) and ROW in query.named_selects


def _derived(conn: Connection, item: exp.Table) -> exp.Subquery | None:
    """Return a derived table with the columns of a table and its rows; None for anything else."""
    if not item.db or item.args.get("only") or item.args.get("sample"):
        return None
    ((oid, _),) = queries.relation_kinds(conn, [(item.db, item.name)]).values()
    names = [column.name for column in relations.columns(conn, oid)]
    if ROW_ID in names or not names:
        return None
    listed: list[exp.Expression] = [exp.column(name, "k", quoted=True) for name in names]
    type_ = exp.DataType(this=exp.DType.USERDEFINED, kind=quoted(item.db, item.name))
    row = exp.Cast(this=exp.Anonymous(this="ROW", expressions=listed), to=type_)
    table = exp.Table(
        this=exp.to_identifier(item.name, quoted=True),
        db=exp.to_identifier(item.db, quoted=True),
        alias=exp.TableAlias(this=exp.to_identifier("k")),
    )
    shown = [*(column.copy() for column in listed), exp.alias_(row, ROW, quoted=True)]
    select = exp.Select(expressions=shown, from_=exp.From(this=table))
    alias = item.args.get("alias") or exp.TableAlias(this=exp.to_identifier(item.name, quoted=True))
    derived = exp.Subquery(this=select, alias=alias.copy())
    derived.set("joins", item.args.get("joins"))
    return derived
