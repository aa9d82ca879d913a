"""Find the place of a construct in the user's query, for error messages.

The planner reads the server's text of the query. Its clauses stand in the order in which the user
wrote them, so both syntax trees are walked side by side. Where the server writes something else
(BETWEEN becomes two comparisons), its node has the place of what the user wrote there; where the
trees do not agree, a node has no place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from sqlglot import exp
from sqlglot.errors import SqlglotError

from millstream.algebra.dialect import CYCLE, SEARCH, parsed
from millstream.algebra.expr import Expr
from millstream.algebra.positions import parse_with_positions, position_of, set_position
from millstream.algebra.table import SelfReference
from millstream.errors import QueryError

_QUERIES = exp.Select | exp.SetOperation | exp.Values


def parse_canonical(text: str, query: str) -> exp.Expression | None:
    """Return the tree of a query's canonical text, with the places of its nodes in the query as the
    user wrote it.

    None for a query that only PostgreSQL can read.
    """
    try:
        tree = parsed(text)
        _align(parse_with_positions(query), tree)
    except SqlglotError:
        return None
    return tree


def add_position(error: QueryError, query: str) -> None:
    """Show the place of the syntax node that an error carries, if it has one."""
    position = _position(error.node)
    if position:
        error.at(position, excerpt(query, position))


def _position(node: object) -> int:
    if isinstance(node, Expr | SelfReference):
        return node.position
    return position_of(node) if isinstance(node, exp.Expr) else 0


def excerpt(query: str, position: int | None) -> str:
    """Return the line of the query with the position marked by an arrow; '' without a position.

    >>> excerpt("SELECT id FROM t FOR UPDATE", 18)
    'Line 1: SELECT id FROM t  --> FOR UPDATE'
    """
    if position is None:
        return ""
    start = query.rfind("\n", 0, position - 1) + 1
    line_number = query.count("\n", 0, position - 1) + 1
    end = query.find("\n", position - 1)
    line = query[start : end if end != -1 else len(query)]
    column = position - start
    head, tail = line[: column - 1], line[column - 1 :]
    return f"Line {line_number}: {head[-60:]} --> {tail[:60]}".rstrip()


# -- the two trees, side by side ----------------------------------------------------------------


def _align(written: exp.Expr, read: exp.Expr) -> None:
    """Give the nodes of a tree that the server wrote the places of the user's nodes that they stand
    for.
    """
    written, read = _unwrap_written(written), _unwrap_read(written, read)
    set_position(read, position_of(written))
    if isinstance(written, exp.Select) and isinstance(read, exp.Select):
        _align_select(written, read)
    elif isinstance(written, exp.CTE) and isinstance(read, exp.CTE):
        _align_cte(written, read)
    elif type(written) is type(read):
        _align_parts(written, read, skip=())
    else:
        _align_rewritten(written, read)


def _unwrap_written(written: exp.Expr) -> exp.Expr:
    """Return a node without parentheses around it."""
    while isinstance(written, exp.Paren) or _is_bare_subquery(written):
        written = written.this
    return written


def _unwrap_read(written: exp.Expr, read: exp.Expr) -> exp.Expr:
    """Return a node without the parentheses and casts that the server put around it, which get its
    place.
    """
    cast = isinstance(_unwrap_written(written), exp.Cast)
    while (
        isinstance(read, exp.Paren)
        or _is_bare_subquery(read)
        or (isinstance(read, exp.Cast) and not cast)
    ):
        set_position(read, position_of(written))
        read = read.this
    return read


def _is_bare_subquery(node: exp.Expr) -> bool:
    """True for parentheses around a query, without a name or other clauses of their own."""
    return (
        isinstance(node, exp.Subquery)
        and isinstance(node.this, _QUERIES)
        and not any(value for name, value in node.args.items() if name != "this")
    )


def _align_parts(written: exp.Expr, read: exp.Expr, skip: Sequence[str]) -> None:
    """Align the parts of two nodes of one kind, name by name."""
    for name, part in read.args.items():
        if name not in skip:
            _align_part(written.args.get(name), part)


def _align_cte(written: exp.CTE, read: exp.CTE) -> None:
    """Align a WITH query, and the columns of its SEARCH and CYCLE clauses."""
    _align_parts(written, read, skip=())
    for name in (SEARCH, CYCLE):
        clause, other = written.args.get(name), read.args.get(name)
        if clause and other:
            _align_part(list(clause.columns), list(other.columns))


def _align_part(written: object, read: object) -> None:
    if isinstance(written, exp.Expr) and isinstance(read, exp.Expr):
        _align(written, read)
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for one, other in zip(written, read, strict=True):
            _align_part(one, other)


def _align_rewritten(written: exp.Expr, read: exp.Expr) -> None:
    """Align what the server wrote in another way: each comparison of BETWEEN has its place, IN's
    left side its own.
    """
    if isinstance(written, exp.Between):
        for part in read.find_all(exp.And, exp.Or, exp.Binary):
            set_position(part, position_of(written))
    elif isinstance(written, exp.In) and isinstance(read, exp.Binary):
        _align(written.this, read.this)


def _align_select(written: exp.Select, read: exp.Select) -> None:
    _align_items(written.expressions, read.expressions)
    _align_from(written, read)
    _align_parts(written, read, skip=("expressions", "from_", "joins", "limit"))
    wanted = written.args.get("limit")
    _align_part(wanted, read.args.get("limit"))


# -- the select list ----------------------------------------------------------------------------


def _align_items(written: Sequence[exp.Expr], read: Sequence[exp.Expr]) -> None:
    """Align a select list, in which a * of the user's is several columns."""
    first = len(list(takewhile(lambda item: not _is_star(item), written)))
    last = (
        len(list(takewhile(lambda item: not _is_star(item), reversed(written))))
        if first < len(written)
        else 0
    )
    for one, other in zip(written[:first], read[:first], strict=False):
        _align_item(one, other)
    if last:
        for one, other in zip(written[-last:], read[-last:], strict=False):
            _align_item(one, other)
    if first + last + 1 == len(written):
        for other in read[first : len(read) - last]:
            set_position(other, position_of(written[first]))


def _align_item(written: exp.Expr, read: exp.Expr) -> None:
    set_position(read, position_of(written))
    _align(_value(written), _value(read))


def _value(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias) else item


def _is_star(item: exp.Expr) -> bool:
    return isinstance(item, exp.Star) or (
        isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
    )


# -- FROM ---------------------------------------------------------------------------------------


def _align_from(written: exp.Select, read: exp.Select) -> None:
    """Align the items of FROM, and the conditions, in the order of the text: the server adds
    parentheses to joins.
    """
    items, other_items = list(_items(written)), list(_items(read))
    if len(items) != len(other_items) or not all(map(_is_same_item, items, other_items)):
        return
    for one, other in zip(items, other_items, strict=True):
        set_position(other, position_of(one))
        _align_parts(one, other, skip=("joins", "alias"))
    ons, other_ons = list(_joins_with_on(written)), list(_joins_with_on(read))
    if len(ons) == len(other_ons):
        for one, other in zip(ons, other_ons, strict=True):
            set_position(other, position_of(one))
            _align(one.args["on"], other.args["on"])


def _is_same_item(written: exp.Expr, read: exp.Expr) -> bool:
    """True if two items have one name; the server adds a number to a name that an outer query has
    too: `t AS t_1`.
    """
    name, other = written.alias_or_name.lower(), read.alias_or_name.lower()
    before, _, number = other.rpartition("_")
    return name == other or (name == before and number.isdigit())


def _items(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the tables, subqueries and functions of a FROM clause or of a join in parentheses."""
    for part in _from_parts(node):
        if not isinstance(part, exp.Join):
            yield part


def _joins_with_on(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the joins that have a condition, each after the items that it joins."""
    for part in _from_parts(node):
        if isinstance(part, exp.Join) and part.args.get("on"):
            yield part


def _from_parts(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the items and the joins of a FROM clause in the order of the text."""
    if isinstance(node, exp.Select):
        first = node.args.get("from_")
        if first is not None:
            yield from _from_parts(first.this)
    elif isinstance(node, exp.Subquery) and not isinstance(node.this, _QUERIES):
        yield from _from_parts(node.this)
    else:
        yield node
    for join in node.args.get("joins") or []:
        yield from _from_parts(join.this)
        yield join
