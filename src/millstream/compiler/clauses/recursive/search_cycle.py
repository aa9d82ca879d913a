"""SEARCH and CYCLE of a recursive query become columns of a plain one.

PostgreSQL adds records to the rows: the place of a row in the search, the path to it. A table cannot hold records
without a type, so here each of their fields has a column of its own, and no query shows them:

    SEARCH DEPTH FIRST BY a, b SET seq      "seq.1": a and b of each row on the way here, in one array
    SEARCH BREADTH FIRST BY a SET seq       "seq.0": the number of steps; "seq.1": a
    CYCLE a, b SET again USING path         again; "path.1", "path.2": a and b of each row on the way here

Arrays order and compare as arrays of records do, NULLs too. A search that nothing is chosen or numbered by is left out,
unless UNION tells rows apart by it.
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
# Of the WITH query as it is rewritten: columns that stand in arrays, and those of one array.
_IN_ARRAYS, _TOGETHER = "ms_in_arrays", "ms_together"
_BASE, _STEP = "__ms_base", "__ms_step"


@dataclass(frozen=True)
class _Added:
    """A column that a clause adds: its value in the base and in the step."""

    name: str
    base: str
    step: str


def rewrite_search_and_cycle(tree: exp.Expression) -> exp.Expression:
    """The same query without SEARCH and CYCLE."""
    for cte in [one for one in tree.find_all(exp.CTE, bfs=False) if one.args.get(SEARCH) or one.args.get(CYCLE)][::-1]:
        _rewrite(cte)
    return tree


def check_types(cte: exp.CTE, types: Callable[[exp.Expression], tuple[PgType, ...]]) -> None:
    """Refuse columns that an array cannot stand for."""
    columns, together = cte.args.get(_IN_ARRAYS), cte.args.get(_TOGETHER, ())
    if not columns:
        return
    base = cte.this.unnest().this.args["from_"].this
    names = [quoted(one.name) for one in base.args["alias"].columns]
    asked = parsed(f"SELECT {', '.join(names)} FROM {printed(base)}")
    found = dict(zip(names, types(asked), strict=True))
    for name in columns:
        if found[quoted(name)].element is not None:
            raise Unsupported.construct(
                f'SEARCH or CYCLE by the array "{name}"',
                reason="The path to each row is an array of these values, and PostgreSQL has no arrays of arrays.",
                way_round="Search by one of its elements, x[1], or by another column.",
            )
    kinds = {found[quoted(name)].base for name in together}
    if len(kinds) > 1 and not kinds <= _EXACT:
        raise Unsupported.construct(
            "the order of SEARCH DEPTH FIRST by columns of several types",
            reason="The path to each row is an array, whose values must have one type.",
            way_round="Search by one column, or cast them to one type in both terms.",
        )


def _rewrite(cte: exp.CTE) -> None:
    union = cte.this.unnest()
    query = _query_of(cte)
    names = recursive_columns(cte)
    added = [*_search(cte, query, bool(union.args.get("distinct"))), *_cycle(cte, query)]
    itself = _itself(cte.alias, union.expression.unnest())
    cycle = cte.args.get(CYCLE)
    base = _around(union.this, names, [one.base for one in added], _BASE, [])
    step = _around(union.expression, names, [one.step for one in added], _STEP, [(itself, one.name) for one in added])
    union.set("this", base)
    union.set("expression", step.where(_not_yet(cycle)) if cycle else step)
    listed = [exp.to_identifier(name, quoted=True) for name in (*names, *(one.name for one in added))]
    cte.args["alias"].set("columns", listed)
    cte.set(SEARCH, None)
    cte.set(CYCLE, None)


def _query_of(cte: exp.CTE) -> exp.Expression:
    """The query that may name it."""
    clause = cte.parent
    assert clause is not None
    assert isinstance(clause.parent, exp.Expression)
    return clause.parent


def _not_yet(cycle: CycleClause) -> exp.Expression:
    """A row that closes a cycle leads to no other."""
    return _expression(f"{_STEP}.{quoted(cycle.mark)} <> {cycle.to or 'true'}")


def _expression(sql: str) -> exp.Expression:
    found = parsed(f"SELECT {sql}").expressions[0]
    assert isinstance(found, exp.Expression)
    return found


def _around(
    term: exp.Expression, names: list[str], added: list[str], alias: str, kept: list[tuple[str, str]]
) -> exp.Select:
    """A term with what is added to its columns; `kept` are columns of the recursion that it needs for that."""
    inner = term.unnest().copy()
    assert isinstance(inner, exp.Select | exp.Values)
    for itself, name in kept:
        assert isinstance(inner, exp.Select)
        inner.select(exp.column(exp.to_identifier(name, quoted=True), _identifier(itself)), copy=False)
    listed = ", ".join(quoted(name) for name in (*names, *(name for _, name in kept)))
    shown = ", ".join([*(f"{alias}.{quoted(name)}" for name in names), *added])
    made = parsed(f"SELECT {shown} FROM ({printed(inner)}) AS {alias} ({listed})")
    assert isinstance(made, exp.Select)
    return made


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _itself(name: str, step: exp.Expression) -> str:
    """What the step calls the recursion."""
    found = [one for one in step.find_all(exp.Table) if not one.db and one.name == name]
    top = [one.alias_or_name for one in found if one.find_ancestor(exp.Select) is step]
    if len(top) != 1 or not isinstance(step, exp.Select):
        raise Unsupported.construct(
            "SEARCH or CYCLE where the recursive table stands in a subquery of its own term",
            reason="PostgreSQL takes it at the top level of the SELECT only.",
            way_round="Join the recursive table itself.",
        )
    return top[0]


# -- SEARCH ------------------------------------------------------------------------------------


def _search(cte: exp.CTE, query: exp.Expression, each_once: bool) -> list[_Added]:
    clause = cte.args.get(SEARCH)
    if not clause:
        return []
    by, seq, depth = clause.by, clause.name, clause.depth
    uses = list(_uses(query, cte.alias, seq))
    uses = [one for one in uses if not _left_out(one)]
    if not uses and not each_once:
        return []
    if not depth:
        added = _breadth(seq, by)
    elif uses:
        cte.set(_IN_ARRAYS, [*cte.args.get(_IN_ARRAYS, ()), *by])
        cte.set(_TOGETHER, by)
        added = [_interleaved(seq, by)]
    else:
        cte.set(_IN_ARRAYS, [*cte.args.get(_IN_ARRAYS, ()), *by])
        added = _arrays(seq, by)
    for use in uses:
        _replace(use, [one.name for one in added], len(by) if depth else 0)
    return added


def _breadth(seq: str, by: Sequence[str]) -> list[_Added]:
    level = f"{seq}.0"
    added = [_Added(level, "0::bigint", f"{_STEP}.{quoted(level)} + 1")]
    fields = ((f"{seq}.{n}", quoted(name)) for n, name in enumerate(by, 1))
    return [*added, *(_Added(own, f"{_BASE}.{name}", f"{_STEP}.{name}") for own, name in fields)]


def _interleaved(seq: str, by: Sequence[str]) -> _Added:
    own = f"{seq}.1"
    base, step = (", ".join(f"{alias}.{quoted(name)}" for name in by) for alias in (_BASE, _STEP))
    return _Added(own, f"array_cat(NULL, ARRAY[{base}])", f"array_cat({_STEP}.{quoted(own)}, ARRAY[{step}])")


def _arrays(path: str, by: Sequence[str]) -> list[_Added]:
    """An array for each column, of its values on the way; made as in the step, so that it is of the same type."""
    fields = ((f"{path}.{n}", quoted(name)) for n, name in enumerate(by, 1))
    return [
        _Added(own, f"array_append(NULL, {_BASE}.{name})", f"array_append({_STEP}.{quoted(own)}, {_STEP}.{name})")
        for own, name in fields
    ]


# -- CYCLE -------------------------------------------------------------------------------------


def _cycle(cte: exp.CTE, query: exp.Expression) -> list[_Added]:
    clause = cte.args.get(CYCLE)
    if not clause:
        return []
    by, path = clause.by, clause.path
    arrays = _arrays(path, by)
    cte.set(_IN_ARRAYS, [*cte.args.get(_IN_ARRAYS, ()), *by])
    for use in list(_uses(query, cte.alias, path)):
        if not _left_out(use):
            _replace(use, [one.name for one in arrays], 1)
    met = _met(
        [(f"{_STEP}.{quoted(one.name)}", f"{_STEP}.{quoted(name)}") for one, name in zip(arrays, by, strict=True)]
    )
    value, other = clause.to or "true", clause.default or "false"
    base, step = (f"CASE WHEN {test} THEN {value} ELSE {other} END" for test in ("false", met))
    return [_Added(clause.mark, base, step), *arrays]


def _met(pairs: list[tuple[str, str]]) -> str:
    """Does the row stand on the path to it? By the places at which each of its columns does; NULL is met by NULL."""
    if len(pairs) == 1:
        return "array_position({}, {}) IS NOT NULL".format(*pairs[0])
    places = ["array_positions({}, {})".format(*pair) for pair in pairs]
    if len(places) == 2:
        return " && ".join(places)
    others = ", ".join(f"'p{n}', to_jsonb({place})" for n, place in enumerate(places[1:]))
    alike = " && ".join(f"@ == $p{n}[*]" for n in range(len(places) - 1))
    return f"jsonb_path_exists(to_jsonb({places[0]}), '$[*] ? ({alike})'::jsonpath, jsonb_build_object({others}))"


# -- where the query uses them -----------------------------------------------------------------


def _uses(query: exp.Expression, cte: str, name: str) -> Iterator[exp.Column]:
    """The columns of this name that are the recursion's."""
    for column in query.find_all(exp.Column):
        if column.name == name and _table_of(column) == cte:
            yield column


def _table_of(column: exp.Column) -> str:
    """The name of the table without schema that a column is of; empty where it is of something else."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        ranged = [one for one in select.find_all(exp.Table, exp.Subquery, exp.Lateral) if _of(one, select)]
        found = [one for one in ranged if one.alias_or_name == column.table] if column.table else ranged
        if found:
            one = found[0]
            return one.name if isinstance(one, exp.Table) and not one.db else ""
        select = select.find_ancestor(exp.Select)
    return ""


def _of(ranged: exp.Expression, select: exp.Select) -> bool:
    """Does it stand in FROM of this SELECT?"""
    clause = ranged.find_ancestor(exp.From, exp.Join, exp.Select)
    return clause is not None and not isinstance(clause, exp.Select) and ranged.find_ancestor(exp.Select) is select


def _left_out(column: exp.Column) -> bool:
    """Take it out of an ORDER BY that decides nothing."""
    order = column.find_ancestor(exp.Order)
    query = order.parent if order is not None else None
    if order is None or not isinstance(query, exp.Select) or limit_text(query) or distinct_on_expressions(query):
        return False
    rest = [one for one in order.expressions if column not in one.find_all(exp.Column)]
    query.set("order", exp.Order(expressions=rest) if rest else None)
    return True


def _replace(column: exp.Column, fields: list[str], width: int) -> None:
    """Order by the fields, or count the rows on the way; the first has `width` values for each, 0 is for no array."""
    own = [exp.column(_identifier(name), column.args.get("table")) for name in fields]
    above = column.parent
    if isinstance(above, exp.Ordered) and isinstance(above.parent, exp.Order) and (width == 0 or len(fields) == 1):
        order, desc = above.parent, bool(above.args.get("desc"))
        made = [exp.Ordered(this=one, desc=desc, nulls_first=desc) for one in own]
        listed = list(order.expressions)
        place = next(n for n, one in enumerate(listed) if one is above)
        order.set("expressions", [*listed[:place], *made, *listed[place + 1 :]])
    elif width and isinstance(above, exp.Anonymous) and above.name == "cardinality":
        above.replace(_expression(f"(cardinality({printed(own[0])}) / {width})"))
    else:
        raise Unsupported.construct(
            f'"{column.name}", which SEARCH or CYCLE adds, in this place',
            reason="It is a record or an array of records; a table has no column type for that.",
            way_round="Order by it, select its cardinality, or compute a path of your own: path || id in both terms.",
        )
