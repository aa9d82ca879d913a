"""SEARCH and CYCLE of a recursive query become columns of a plain one.

PostgreSQL adds records to the rows: the place of a row in the search, the path to it. A table
cannot hold records without a type, so here each of their fields has a column of its own, and no
query shows them:

    SEARCH DEPTH FIRST BY a, b SET seq      "seq.1": a and b of each row on the way here, in one array
    SEARCH BREADTH FIRST BY a SET seq       "seq.0": the number of steps; "seq.1": a
    CYCLE a, b SET again USING path         again; "path.1", "path.2": a and b of each row on the way here

Arrays order and compare as arrays of records do, NULLs too. A SEARCH column that orders no LIMIT,
DISTINCT ON or window is dropped, unless UNION compares rows by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.dialect import CYCLE, SEARCH, CycleClause, parsed, printed
from millstream.algebra.table import quoted
from millstream.algebra.types import PgType
from millstream.compiler.clauses.limit import distinct_on_expressions, limit_text
from millstream.compiler.server.viewdef import recursive_columns
from millstream.errors import Unsupported

_EXACT = frozenset({"int2", "int4", "int8", "numeric"})
# Arguments of a rewritten WITH query: the columns whose values arrays hold, and those that share
# one array.
_IN_ARRAYS, _TOGETHER = "ms_in_arrays", "ms_together"
_BASE, _STEP = "__ms_base", "__ms_step"


@dataclass(frozen=True)
class _AddedColumn:
    """A column that a clause adds: its value in the base and in the step."""

    name: str
    base: str
    step: str


def rewrite_search_and_cycle(tree: exp.Expression) -> exp.Expression:
    """Rewrite SEARCH and CYCLE of a syntax tree, in place; return the tree."""
    ctes = [
        cte
        for cte in tree.find_all(exp.CTE, bfs=False)
        if cte.args.get(SEARCH) or cte.args.get(CYCLE)
    ]
    for cte in reversed(ctes):
        _rewrite(cte)
    return tree


def check_types(cte: exp.CTE, types: Callable[[exp.Expression], tuple[PgType, ...]]) -> None:
    """Raise Unsupported if an array cannot hold the columns of a rewritten SEARCH or CYCLE."""
    in_arrays, together = cte.args.get(_IN_ARRAYS, ()), cte.args.get(_TOGETHER, ())
    if not in_arrays:
        return
    base = cte.this.unnest().this.args["from_"].this
    names = [quoted(column.name) for column in base.args["alias"].columns]
    asked = parsed(f"SELECT {', '.join(names)} FROM {printed(base)}")
    by_name = dict(zip(names, types(asked), strict=True))
    for column in in_arrays:
        if by_name[quoted(column.name)].element is not None:
            raise Unsupported.construct(
                f'SEARCH or CYCLE by the array "{column.name}"',
                reason="The path to each row is an array of these values, and PostgreSQL has no arrays of arrays.",
                way_round="Search by one of its elements, x[1], or by another column.",
                node=column,
            )
    bases = {by_name[quoted(column.name)].base for column in together}
    if len(bases) > 1 and not bases <= _EXACT:
        raise Unsupported.construct(
            "the order of SEARCH DEPTH FIRST by columns of several types",
            reason="The path to each row is an array, whose values must have one type.",
            way_round="Search by one column, or cast them to one type in both terms.",
            node=together[0],
        )


def _rewrite(cte: exp.CTE) -> None:
    union = cte.this.unnest()
    query = _query_with(cte)
    names = recursive_columns(cte)
    added = [*_search(cte, query, each_once=bool(union.args.get("distinct"))), *_cycle(cte, query)]
    added_names = [column.name for column in added]
    itself = _alias_of_itself(cte.alias, union.expression.unnest())
    base = _wrap_term(union.this, _Wrapper(_BASE, names, [column.base for column in added]))
    read_again = [(itself, name) for name in added_names]
    step = _wrap_term(
        union.expression, _Wrapper(_STEP, names, [column.step for column in added], read_again)
    )
    cycle = cte.args.get(CYCLE)
    union.set("this", base)
    union.set("expression", step.where(_closes_no_cycle(cycle)) if cycle else step)
    cte.args["alias"].set("columns", list(map(_identifier, [*names, *added_names])))
    cte.set(SEARCH, None)
    cte.set(CYCLE, None)


def _query_with(cte: exp.CTE) -> exp.Expression:
    """Return the query whose WITH clause has a WITH query."""
    clause = cte.parent
    assert clause is not None
    assert isinstance(clause.parent, exp.Expression)
    return clause.parent


def _closes_no_cycle(cycle: CycleClause) -> exp.Expression:
    """Return the condition of the step: a row that closes a cycle leads to no other row."""
    return _expression(f"{_STEP}.{quoted(cycle.mark)} <> {cycle.to or 'true'}")


def _expression(sql: str) -> exp.Expression:
    node = parsed(f"SELECT {sql}").expressions[0]
    assert isinstance(node, exp.Expression)
    return node


@dataclass(frozen=True)
class _Wrapper:
    """The SELECT around a term of the recursion, which adds columns."""

    alias: str
    names: list[str]
    """The term's own columns."""
    added: list[str]
    """The expressions of the added columns."""
    read_again: Sequence[tuple[str, str]] = ()
    """The columns, by alias and name, of the recursion itself that the added ones are computed
    from.
    """


def _wrap_term(term: exp.Expression, wrapper: _Wrapper) -> exp.Select:
    inner = term.unnest().copy()
    assert isinstance(inner, exp.Select | exp.Values)
    for itself, name in wrapper.read_again:
        assert isinstance(inner, exp.Select)
        inner.select(exp.column(_identifier(name), _identifier(itself)), copy=False)
    names = ", ".join(
        quoted(name) for name in (*wrapper.names, *(name for _, name in wrapper.read_again))
    )
    own = [f"{wrapper.alias}.{quoted(name)}" for name in wrapper.names]
    listed = ", ".join([*own, *wrapper.added])
    select = parsed(f"SELECT {listed} FROM ({printed(inner)}) AS {wrapper.alias} ({names})")
    assert isinstance(select, exp.Select)
    return select


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _alias_of_itself(name: str, step: exp.Expression) -> str:
    """Return the alias of the recursion in its step; raise Unsupported if it is not in the FROM of
    the step itself.
    """
    tables = [table for table in step.find_all(exp.Table) if not table.db and table.name == name]
    in_from = [table.alias_or_name for table in tables if table.find_ancestor(exp.Select) is step]
    if len(in_from) != 1 or not isinstance(step, exp.Select):
        raise Unsupported.construct(
            "SEARCH or CYCLE where the recursive table stands in a subquery of its own term",
            reason="PostgreSQL takes it at the top level of the SELECT only.",
            way_round="Join the recursive table itself.",
            node=next(iter(tables), None),
        )
    return in_from[0]


# -- SEARCH ------------------------------------------------------------------------------------


def _search(cte: exp.CTE, query: exp.Expression, *, each_once: bool) -> list[_AddedColumn]:
    """Return the columns of a SEARCH clause, and let the query order by them; none if it orders
    nothing by them.
    """
    clause = cte.args.get(SEARCH)
    if not clause:
        return []
    by, seq = clause.by, clause.name
    uses = [use for use in list(_uses(query, cte.alias, seq)) if not _drop_from_idle_order(use)]
    if not uses and not each_once:
        return []
    if not clause.depth:
        added = _breadth(seq, by)
    elif uses:
        _note_arrays(cte, clause.columns)
        cte.set(_TOGETHER, clause.columns)
        added = [_interleaved(seq, by)]
    else:
        _note_arrays(cte, clause.columns)
        added = _arrays(seq, by)
    for use in uses:
        _replace(use, [column.name for column in added], len(by) if clause.depth else 0)
    return added


def _note_arrays(cte: exp.CTE, columns: Sequence[exp.Expr]) -> None:
    """Note for `check_types` that arrays hold the values of columns."""
    # A tuple: sqlglot takes the nodes of a list for parts of the tree.
    cte.set(_IN_ARRAYS, (*cte.args.get(_IN_ARRAYS, ()), *columns))


def _breadth(seq: str, by: Sequence[str]) -> list[_AddedColumn]:
    """Return the number of steps to each row, and the columns that order the rows of one step."""
    level = f"{seq}.0"
    added = [_AddedColumn(level, "0::bigint", f"{_STEP}.{quoted(level)} + 1")]
    for number, column in enumerate(by, 1):
        name = quoted(column)
        added.append(_AddedColumn(f"{seq}.{number}", f"{_BASE}.{name}", f"{_STEP}.{name}"))
    return added


def _interleaved(seq: str, by: Sequence[str]) -> _AddedColumn:
    """Return one array of the values of all columns in all rows on the way."""
    name = f"{seq}.1"
    base, step = (
        ", ".join(f"{alias}.{quoted(column)}" for column in by) for alias in (_BASE, _STEP)
    )
    before = f"{_STEP}.{quoted(name)}"
    return _AddedColumn(
        name, f"array_cat(NULL, ARRAY[{base}])", f"array_cat({before}, ARRAY[{step}])"
    )


def _arrays(path: str, by: Sequence[str]) -> list[_AddedColumn]:
    """Return one array for each column, of its values in all rows on the way.

    The base makes it by the same function as the step, so that both have one type.
    """
    added = list[_AddedColumn]()
    for number, column in enumerate(by, 1):
        name, value = f"{path}.{number}", quoted(column)
        base = f"array_append(NULL, {_BASE}.{value})"
        step = f"array_append({_STEP}.{quoted(name)}, {_STEP}.{value})"
        added.append(_AddedColumn(name, base, step))
    return added


# -- CYCLE -------------------------------------------------------------------------------------


def _cycle(cte: exp.CTE, query: exp.Expression) -> list[_AddedColumn]:
    """Return the columns of a CYCLE clause: the mark, and the arrays of the path."""
    clause = cte.args.get(CYCLE)
    if not clause:
        return []
    arrays = _arrays(clause.path, clause.by)
    _note_arrays(cte, clause.columns)
    for use in list(_uses(query, cte.alias, clause.path)):
        if not _drop_from_idle_order(use):
            _replace(use, [column.name for column in arrays], 1)
    columns = zip(arrays, clause.by, strict=True)
    pairs = [
        (f"{_STEP}.{quoted(array.name)}", f"{_STEP}.{quoted(name)}") for array, name in columns
    ]
    to, default = clause.to or "true", clause.default or "false"
    base, step = (
        f"CASE WHEN {test} THEN {to} ELSE {default} END" for test in ("false", _is_on_path(pairs))
    )
    return [_AddedColumn(clause.mark, base, step), *arrays]


def _is_on_path(pairs: list[tuple[str, str]]) -> str:
    """Return the condition that a row is on the path to it; `pairs` are the array and the value of
    each column.

    It is if the positions of its values in the arrays have one in common. NULL equals NULL.
    """
    if len(pairs) == 1:
        return "array_position({}, {}) IS NOT NULL".format(*pairs[0])
    positions = ["array_positions({}, {})".format(*pair) for pair in pairs]
    if len(positions) == 2:
        return " && ".join(positions)
    others = ", ".join(f"'p{n}', to_jsonb({position})" for n, position in enumerate(positions[1:]))
    equal = " && ".join(f"@ == $p{n}[*]" for n in range(len(positions) - 1))
    filtered = f"'$[*] ? ({equal})'::jsonpath"
    return f"jsonb_path_exists(to_jsonb({positions[0]}), {filtered}, jsonb_build_object({others}))"


# -- where the query uses them -----------------------------------------------------------------


def _uses(query: exp.Expression, cte: str, name: str) -> Iterator[exp.Column]:
    """Yield the references of a query to a column of the recursion."""
    for column in query.find_all(exp.Column):
        if column.name == name and _table_of(column) == cte:
            yield column


def _table_of(column: exp.Column) -> str:
    """Return the table without schema that a column belongs to; '' if it belongs to anything else."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        items = [
            item
            for item in select.find_all(exp.Table, exp.Subquery, exp.Lateral)
            if _is_in_from(item, select)
        ]
        matching = [
            item for item in items if not column.table or item.alias_or_name == column.table
        ]
        if matching:
            item = matching[0]
            return item.name if isinstance(item, exp.Table) and not item.db else ""
        select = select.find_ancestor(exp.Select)
    return ""


def _is_in_from(item: exp.Expression, select: exp.Select) -> bool:
    """Return True if an item is in the FROM of this SELECT, not of one inside it."""
    clause = item.find_ancestor(exp.From, exp.Join, exp.Select)
    return (
        clause is not None
        and not isinstance(clause, exp.Select)
        and item.find_ancestor(exp.Select) is select
    )


def _drop_from_idle_order(column: exp.Column) -> bool:
    """Drop a column from an ORDER BY that does not decide which rows there are; return False for
    any other place.
    """
    order = column.find_ancestor(exp.Order)
    query = order.parent if order is not None else None
    if (
        order is None
        or not isinstance(query, exp.Select)
        or limit_text(query)
        or distinct_on_expressions(query)
    ):
        return False
    others = [term for term in order.expressions if column not in term.find_all(exp.Column)]
    query.set("order", exp.Order(expressions=others) if others else None)
    return True


def _replace(column: exp.Column, fields: list[str], width: int) -> None:
    """Replace a column in ORDER BY by its fields; replace its cardinality by the number of rows on
    the way.

    `width` is the number of values that the first field, an array, has for each row; 0 if it is no
    array. Raise Unsupported if the column is used in another place.
    """
    fields_of_column = [exp.column(_identifier(name), column.args.get("table")) for name in fields]
    above = column.parent
    if (
        isinstance(above, exp.Ordered)
        and isinstance(above.parent, exp.Order)
        and (width == 0 or len(fields) == 1)
    ):
        _order_by_fields(above.parent, above, fields_of_column)
    elif width and isinstance(above, exp.Anonymous) and above.name == "cardinality":
        above.replace(_expression(f"(cardinality({printed(fields_of_column[0])}) / {width})"))
    else:
        raise Unsupported.construct(
            f'"{column.name}", which SEARCH or CYCLE adds, in this place',
            reason="It is a record or an array of records; a table has no column type for that.",
            way_round="Order by it, select its cardinality, or compute a path of your own: path || id in both terms.",
            node=column,
        )


def _order_by_fields(order: exp.Order, term: exp.Ordered, fields: Sequence[exp.Expression]) -> None:
    """Replace a term of ORDER BY by the fields, in the same direction."""
    descending = bool(term.args.get("desc"))
    terms = list[exp.Expression]()
    for other in order.expressions:
        if other is term:
            terms += [
                exp.Ordered(this=field, desc=descending, nulls_first=descending) for field in fields
            ]
        else:
            terms.append(other)
    order.set("expressions", terms)
