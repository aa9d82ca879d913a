"""Carry the ORDER BY of a subquery in FROM into the calls whose result depends on the order of
their rows.

    SELECT string_agg(q.x, ',') FROM (SELECT a.x FROM a ORDER BY a.y) AS q

    SELECT string_agg(q.x, ',' ORDER BY q.__ms_sorted_0)
    FROM (SELECT a.x, a.y AS __ms_sorted_0 FROM a ORDER BY a.y) AS q

A relation has no order, but PostgreSQL keeps that of a sorted subquery in practice, through WHERE
and plain select lists, and its manual offers the form. The same holds for views and WITH queries,
and for window functions without an ORDER BY of their own, whose frame is written out then: an ORDER
BY would change it.

Where the sorted subquery is joined, or is one part of a UNION ALL, the order that PostgreSQL shows
depends on its plan. Such a query is refused. So are LIMIT and DISTINCT ON without an ORDER BY of
their own over a sorted subquery: PostgreSQL takes the first rows of the subquery's order, which is
easily written beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from sqlglot import exp

from millstream.algebra.dialect import parsed, printed
from millstream.algebra.special_calls import SpecialAggregate
from millstream.compiler.clauses.groups.grouping import Aggregates, function_name
from millstream.compiler.clauses.limit import direction_of
from millstream.compiler.clauses.windows import inline_named_windows
from millstream.errors import Unsupported

COLUMN = "__ms_sorted_"

_LISTS = ("array_agg", "string_agg", "xmlagg", "any_value")
_JSON = tuple(
    f"{name}{how}" for name in ("json", "jsonb") for how in ("_agg", "_agg_strict", "_object_agg")
)
_OBJECTS = tuple(
    f"{name}_object_agg_{how}"
    for name in ("json", "jsonb")
    for how in ("strict", "unique", "unique_strict")
)
# The server's own aggregates whose result depends on the order of the rows. Of a user's aggregates
# any may.
SENSITIVE = frozenset({*_LISTS, *_JSON, *_OBJECTS, "json_arrayagg", "json_objectagg"})
_BY_POSITION = frozenset({"row_number", "lag", "lead", "ntile"})
_BY_FRAME = frozenset({"first_value", "last_value", "nth_value"})
# Their rows are peers of each other without an ORDER BY: no order changes that.
_BY_PEERS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})

Key = exp.Ordered
View = Callable[[str, str], exp.Expression | None]


class SubqueryOrder:
    """Rewrites the SELECTs of one syntax tree."""

    def __init__(self, aggregates: Aggregates, view: View) -> None:
        self.aggregates = aggregates
        self.view = view
        self._numbers = count()

    def carry(self, tree: exp.Expression) -> exp.Expression:
        """Write the order of its rows into each order-sensitive call of a tree, in place."""
        for node in tree.walk():  # lazily: what a SELECT's FROM becomes here is walked through next
            if isinstance(node, exp.Select):
                self._carry(node)
        return tree

    def _carry(self, select: exp.Select) -> None:
        self._check_first_rows(select)
        if not list(self._sensitive(select)):
            return
        calls = list(self._sensitive(inline_named_windows(select)))
        keys = self._order_under(select, calls[0]) if calls else []
        for call in calls if keys else ():
            _write_order(call, keys)

    def _check_first_rows(self, select: exp.Select) -> None:
        """Refuse to choose the first rows of a sorted subquery by another order than PostgreSQL
        does in practice.
        """
        on = _distinct_on(select)
        if (
            select.args.get("order")
            or not (on or _cuts_rows(select))
            or not self._passes_order(select, on=on)
        ):
            return
        items = list(_items(select))
        if len(items) == 1 and self._is_sorted(items[0]):
            raise _refusal_of_first_rows(items[0], on=on)

    def _order_under(self, select: exp.Select, call: exp.Expression) -> list[Key]:
        """Return the order of the rows of a SELECT's FROM, with keys that are columns of its only
        item.
        """
        items = list(_items(select))
        sorted_items = [item for item in items if self._is_sorted(item)]
        if len(items) == 1 and sorted_items:
            return self._order_of(items[0])
        appended = [item for item in items if self._has_sorted_part(item)]
        if sorted_items or appended:
            raise _refusal(call, (sorted_items or appended)[0].alias_or_name)
        return []

    def _order_of(self, item: exp.Expression) -> list[Key]:
        found = self._query_of(item)
        assert found is not None, f"not a subquery: {item}"
        if found is not item:
            item.replace(found)
        keys = self._shown_keys(found.this)
        alias = found.args["alias"]
        return [
            _outer_key(key, _outside(name, found.this, alias), alias.name) for name, key in keys
        ]

    def _is_sorted(self, item: exp.Expression) -> bool:
        found = self._query_of(item)
        return found is not None and self._is_sorted_query(found.this)

    def _has_sorted_part(self, item: exp.Expression) -> bool:
        """Return True for a UNION ALL that has a sorted part and no order itself."""
        found = self._query_of(item)
        query = found.this if found is not None else None
        if (
            not isinstance(query, exp.Union)
            or query.args.get("distinct")
            or query.args.get("order")
        ):
            return False
        return any(self._is_sorted_query(part) for part in (query.this, query.expression))

    def _is_sorted_query(self, query: exp.Expression) -> bool:
        """Return True if the rows of a query have an order: its own, or that of the only item of
        its FROM.
        """
        query = query.this if isinstance(query, exp.Subquery) else query
        if query.args.get("order"):
            return True
        if not self._passes_order(query):
            return False
        items = list(_items(query))
        return len(items) == 1 and self._is_sorted(items[0])

    def _passes_order(self, query: exp.Expression, *, on: bool = False) -> bool:
        """Return True if a query keeps the order of its FROM; with `on`, ignore its DISTINCT ON."""
        if not isinstance(query, exp.Select) or self.aggregates.group(query):
            return False
        if query.args.get("distinct") and not on:
            return False
        return not any(item.find(exp.Window) for item in query.expressions)

    def _shown_keys(self, query: exp.Expression) -> list[tuple[str | int, Key]]:
        """Return the sort keys of a query, each with the name or position of an output column,
        which is added.
        """
        if isinstance(query, exp.Subquery):
            return self._shown_keys(query.this)
        order = query.args.get("order")
        if isinstance(query, exp.SetOperation):
            assert order is not None, f"not sorted: {query}"
            return [(int(key.this.name) - 1, key) for key in order.expressions]
        assert isinstance(query, exp.Select), f"unexpected {type(query).__name__}"
        keys = list(order.expressions) if order else self._order_of(next(_items(query)))
        return [(self._shown(query, key), key) for key in keys]

    def _shown(self, select: exp.Select, key: Key) -> str:
        name = f"{COLUMN}{next(self._numbers)}"
        select.append("expressions", exp.alias_(key.this.copy(), name, quoted=True))
        return name

    # -- what an item of FROM stands for -----------------------------------------------------

    def _query_of(self, item: exp.Expression) -> exp.Subquery | None:
        """Return an item of FROM as a subquery: the item itself, or the WITH query or view that it
        names.
        """
        if isinstance(item, exp.Lateral) and isinstance(item.this, exp.Subquery):
            return exp.Subquery(this=item.this.this.copy(), alias=item.args["alias"].copy())
        if isinstance(item, exp.Subquery):
            return item if isinstance(item.this, exp.Query) and item.alias else None
        if not isinstance(item, exp.Table) or not isinstance(item.this, exp.Identifier):
            return None
        return self._view(item) if item.db else _with_query(item)

    def _view(self, item: exp.Table) -> exp.Subquery | None:
        query = self.view(item.db, item.name)
        return _as_subquery(item, query, ()) if query is not None else None

    # -- calls -------------------------------------------------------------------------------

    def _sensitive(self, select: exp.Select) -> Iterator[exp.Expression]:
        """Yield the calls of a SELECT, without those of its subqueries, that need an order and have
        none.
        """
        for item in (*select.expressions, select.args.get("having"), select.args.get("order")):
            if item is not None:
                yield from self._sensitive_in(item)

    def _sensitive_in(self, node: exp.Expression) -> Iterator[exp.Expression]:
        if isinstance(node, exp.Query | exp.WithinGroup):
            return
        if isinstance(node, exp.Window):
            if _window_depends(node):
                yield node
            return
        if self._depends(node):
            yield node
            return
        for child in node.iter_expressions():
            yield from self._sensitive_in(child)

    def _depends(self, node: exp.Expression) -> bool:
        """Return True for an aggregate whose result depends on the order of its rows and that has
        no ORDER BY.
        """
        call = node.expression if isinstance(node, exp.Dot) else node
        if isinstance(call, SpecialAggregate):
            return not call.has_order
        if not isinstance(call, exp.Anonymous) or not self.aggregates.is_call(node):
            return False
        name = function_name(node).lower()
        has_order = any(
            isinstance(argument, exp.Order | exp.Distinct) for argument in call.expressions
        )
        return bool(call.expressions) and not has_order and (name in SENSITIVE or "." in name)


def _distinct_on(select: exp.Select) -> bool:
    distinct = select.args.get("distinct")
    return distinct is not None and distinct.args.get("on") is not None


def _cuts_rows(select: exp.Select) -> bool:
    """Return True if LIMIT or OFFSET may drop rows: LIMIT ALL and OFFSET 0 do not."""
    limit, offset = (select.args.get(word) for word in ("limit", "offset"))
    count = printed(limit).strip().upper() if limit is not None else ""
    start = printed(offset).strip().upper() if offset is not None else ""
    return count not in ("", "LIMIT ALL", "LIMIT NULL") or start not in ("", "OFFSET 0")


def _items(select: exp.Expression) -> Iterator[exp.Expression]:
    """Yield the items of a FROM clause, also those inside parenthesized joins."""
    clause = select.args.get("from_")
    first = [clause.this] if clause else []
    for item in (*first, *(join.this for join in select.args.get("joins") or ())):
        yield from _unfold(item)


def _unfold(item: exp.Expression) -> Iterator[exp.Expression]:
    # A join in parentheses may begin with another one.
    queries = exp.Select | exp.SetOperation | exp.Values
    parentheses = isinstance(item, exp.Subquery) and not isinstance(item.this, queries)
    if parentheses:
        yield from _unfold(item.this)
    else:
        yield item
    for join in item.args.get("joins") or ():
        yield from _unfold(join.this)


def _with_query(item: exp.Table) -> exp.Subquery | None:
    """Return the WITH query that a name without a schema refers to, as a subquery."""
    shadowing = set[str]()
    path = [item, *_ancestors(item)]
    for node in path:
        clause = node.args.get("with_") if isinstance(node, exp.Query) else None
        if clause is None:
            continue
        ctes = list(clause.expressions)
        # A WITH query sees those before it.
        seen = next(
            (n for n, cte in enumerate(ctes) if any(node is cte for node in path)), len(ctes)
        )
        for cte in ctes[:seen]:
            if cte.alias == item.name:
                return _inline(item, cte, shadowing)
        shadowing |= {cte.alias for cte in ctes}
    return None


def _ancestors(node: exp.Expression) -> Iterator[exp.Expression]:
    parent = node.parent
    while isinstance(parent, exp.Expression):
        yield parent
        parent = parent.parent


def _inline(item: exp.Table, cte: exp.CTE, shadowing: set[str]) -> exp.Subquery | None:
    names = {table.name for table in cte.this.find_all(exp.Table) if not table.db}
    if names & shadowing:
        raise Unsupported.construct(
            f'the WITH query "{cte.alias}" under a call that depends on the order of its rows',
            reason="It names a WITH query whose name means another one where it is used.",
            way_round="Give each WITH query a name of its own.",
            node=item,
        )
    return (
        _as_subquery(item, cte.this.copy(), cte.args["alias"].columns)
        if cte.alias not in names
        else None
    )


def _as_subquery(
    item: exp.Table, query: exp.Expression, columns: Sequence[exp.Expression]
) -> exp.Subquery:
    bindings = item.args.get("alias")
    own = list(bindings.columns) if bindings else []
    listed = [column.copy() for column in (*own, *columns[len(own) :])]
    alias = exp.TableAlias(this=exp.to_identifier(item.alias_or_name, quoted=True), columns=listed)
    found = exp.Subquery(this=query, alias=alias)
    # Names in it are looked for from where it is used.
    found.parent = item.parent
    return found


def _outside(name: str | int, query: exp.Expression, alias: exp.TableAlias) -> str:
    """Return the name of a column of a subquery outside of it."""
    if isinstance(name, str):
        return name
    if name < len(alias.columns):
        return str(alias.columns[name].name)
    return str(next(query.find_all(exp.Select)).expressions[name].alias_or_name)


def _outer_key(key: Key, column: str, alias: str) -> Key:
    found = key.copy()
    found.set("this", exp.column(column, alias, quoted=True))
    return found


def _window_depends(window: exp.Window) -> bool:
    call = window.this.this if isinstance(window.this, exp.Filter) else window.this
    name = function_name(call).lower()
    if window.args.get("order") or name in _BY_PEERS:
        return False
    return name in _BY_POSITION | _BY_FRAME | SENSITIVE or "." in name or _by_rows(window)


def _by_rows(window: exp.Window) -> bool:
    spec = window.args.get("spec")
    return spec is not None and str(spec.args.get("kind")).upper() == "ROWS"


def _write_order(call: exp.Expression, keys: Sequence[Key]) -> None:
    """Write the order into a call."""
    order = [key.copy() for key in keys]
    if isinstance(call, exp.Window):
        _write_window_order(call, order)
        return
    inner = call.expression if isinstance(call, exp.Dot) else call
    if isinstance(inner, SpecialAggregate):
        if not inner.takes_order:
            raise _refusal(call, "")
        inner.order_by([key.this for key in order], [direction_of(key) for key in order])
        return
    last = inner.expressions[-1]
    last.replace(exp.Order(this=last.copy(), expressions=order))


def _write_window_order(window: exp.Window, order: list[Key]) -> None:
    spec = window.args.get("spec")
    excluded = str(spec.args.get("exclude") or "").upper() if spec else ""
    if excluded in ("TIES", "GROUP") or (excluded and not _by_rows(window)):
        raise _refusal(window, "")
    if not _by_rows(window):
        # Without an ORDER BY all rows are peers, so the frame is the whole partition.
        window.set("spec", _whole_partition())
    window.set("order", exp.Order(expressions=order))


def _whole_partition() -> exp.Expression:
    tree = parsed("SELECT f() OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)")
    spec = tree.find(exp.WindowSpec)
    assert spec is not None
    return spec.copy()


def _refusal_of_first_rows(item: exp.Expression, *, on: bool) -> Unsupported:
    what, where = ("DISTINCT ON", "ORDER BY k, y") if on else ("LIMIT", "ORDER BY y LIMIT 10")
    return Unsupported.construct(
        f'{what} over the sorted subquery "{item.alias_or_name}" without an ORDER BY of its own',
        reason="PostgreSQL takes the first rows in the order of the subquery, which SQL does not promise.",
        way_round=f"Write the order beside it, by columns that the subquery shows: {where}.",
        node=item,
    )


def _refusal(call: exp.Expression, name: str) -> Unsupported:
    where = (
        f'over the sorted subquery "{name}", which is joined or united,'
        if name
        else "over a sorted subquery"
    )
    written = (
        "OVER (... ORDER BY ...)" if isinstance(call, exp.Window) else "array_agg(x ORDER BY y)"
    )
    return Unsupported.construct(
        f"{printed(call)} {where} without an ORDER BY of its own",
        reason="The order in which PostgreSQL shows such rows depends on its plan.",
        way_round=f"Write the order into the call: {written}.",
        node=call,
    )
