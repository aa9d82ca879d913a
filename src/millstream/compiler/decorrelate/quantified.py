"""IN, ANY and ALL of a subquery.

x IN (q), x = ANY (q)       a mark join by x = y; if NULLs are possible, a second mark tells unknown from false
x > ALL (q), x < ANY (q)    min, max and the number of values of q, joined and compared with x
x LIKE ANY (q), ALL (q)     a mark join by x LIKE y, and one that tells unknown
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, unwrapped
from millstream.algebra.relation import Aggregate, Call, Filter, Measure, Named, Project, Relation
from millstream.compiler.decorrelate.attach import Host, KeyedSubquery, SubqueryJoiner
from millstream.compiler.decorrelate.bindings import Correlated
from millstream.compiler.decorrelate.scope import is_never_null


def in_mark(joiner: SubqueryJoiner, node: exp.In, host: Host, *, unknown_as_false: bool) -> Expr:
    """Join `x IN (q)` to the host; return its truth value.

    `unknown_as_false`: the result only filters, so NULLs need no mark of their own.
    """
    left = unwrapped(node.this)
    items = left.expressions if isinstance(left, exp.Tuple) else [left]
    values = [joiner.expression(item, host) for item in items]
    query = node.args["query"].this
    correlated = joiner.decorrelate(query, host)
    pairs = list(zip(values, correlated.outputs, strict=True))
    equalities = [Expr.parse(f"({value.sql}) = ({output.sql})") for value, output in pairs]
    conditions = [*correlated.correlations, *equalities]
    mark = host.mark_join(correlated.relation, conditions, joiner.builder.fresh("mark"))
    outputs_not_null = all(
        _is_not_null(correlated.relation, output) for output in correlated.outputs
    )
    never_unknown = outputs_not_null and all(_is_not_null(host.relation, value) for value in values)
    if unknown_as_false or never_unknown:
        return mark
    unknown = _unknown_mark(joiner, query, values, host)
    return Expr.parse(
        f"CASE WHEN {mark.sql} THEN true WHEN {unknown.sql} THEN CAST(NULL AS BOOLEAN) ELSE false END"
    )


def rewrite_as_in(node: exp.Binary) -> exp.In:
    """Return `x IN (q)` for `x = ANY (q)`, and for `x <> ALL (q)`, which is its negation."""
    query = unwrapped(node.expression.this)
    subquery = query if isinstance(query, exp.Subquery) else exp.Subquery(this=query.copy())
    return exp.In(this=node.this.copy(), query=subquery)


def _unknown_mark(
    joiner: SubqueryJoiner, query: exp.Expression, values: list[Expr], host: Host
) -> Expr:
    """Return a condition that is true if a row of q compares as unknown; it is read only if no row
    is equal.
    """
    correlated = joiner.decorrelate(query, host)
    if len(values) == 1 and not correlated.correlations:
        return _unknown_of_uncorrelated(joiner, query, values[0], correlated, host)
    pairs = zip(values, correlated.outputs, strict=True)
    not_false = [
        Expr.parse(f"(({value.sql}) = ({output.sql})) IS NOT FALSE") for value, output in pairs
    ]
    conditions = [*correlated.correlations, *not_false]
    return host.mark_join(correlated.relation, conditions, joiner.builder.fresh("mark"))


def _unknown_of_uncorrelated(
    joiner: SubqueryJoiner, query: exp.Expression, value: Expr, correlated: Correlated, host: Host
) -> Expr:
    """Return the unknown condition of one column without correlation: q has a NULL, or x is NULL
    and q has a row.

    Both are facts about all of q, so no join by value is needed.
    """
    output = correlated.outputs[0]
    conditions = list[str]()
    if not _is_not_null(correlated.relation, output):
        nulls = Filter(correlated.relation, Expr.parse(f"({output.sql}) IS NULL"))
        conditions.append(_is_non_empty(joiner, nulls, host))
    if not _is_not_null(host.relation, value):
        # Built again: one relation cannot be joined twice under the same aliases.
        relation = joiner.decorrelate(query, host).relation
        conditions.append(f"(({value.sql}) IS NULL AND {_is_non_empty(joiner, relation, host)})")
    return Expr.parse(f"({' OR '.join(conditions)})")


def _is_non_empty(joiner: SubqueryJoiner, relation: Relation, host: Host) -> str:
    """Join "the relation has a row" to the host; return its column.

    It is computed from a maintained count, so that rows downstream change only when the answer
    changes.
    """
    fresh = joiner.builder.fresh
    counted = Aggregate(relation, (), (Measure("m0", Call("count", None)),), fresh("n"))
    some = Project(
        counted, (Named("some", Expr.parse(f'"{counted.alias}"."m0" > 0')),), fresh("some")
    )
    host.join(some, None, "inner")
    return Ref(some.alias, "some").sql


def _is_not_null(relation: Relation | None, value: Expr) -> bool:
    ref = value.as_ref
    return ref is not None and relation is not None and is_never_null(relation, ref)


def quantified_comparison(joiner: SubqueryJoiner, node: exp.Expression, host: Host) -> Expr:
    """Join the bounds of q to the host; return `x > ALL (q)` or `x < ANY (q)` as a comparison with
    them.

    An operator without an order, such as LIKE, has marks instead.
    """
    assert isinstance(node, exp.Binary)
    quantifier = node.expression
    symbol = _SYMBOLS.get(type(node))
    if symbol is None:
        return operator_mark(joiner, node, host, unknown_as_false=False)
    value = joiner.expression(node.this, host)
    query = unwrapped(quantifier.this)
    bounds = _join_bounds(joiner, joiner.decorrelate_by_keys(query, host), host)
    template = _TEMPLATES[isinstance(quantifier, exp.All), symbol]
    return Expr.parse(template.format(x=f"({value.sql})", **bounds))


def has_operator_mark(node: exp.Expression) -> bool:
    """True for `x LIKE ANY (q)` and the like: an operator without an order."""
    any_of_query = (
        isinstance(node, exp.Binary)
        and isinstance(node.expression, exp.Any)
        and isinstance(unwrapped(node.expression.this), exp.Query | exp.Subquery)
    )
    return any_of_query and not isinstance(node, tuple(_SYMBOLS))


def operator_mark(
    joiner: SubqueryJoiner, node: exp.Binary, host: Host, *, unknown_as_false: bool
) -> Expr:
    """Join `x LIKE ANY (q)` or `x LIKE ALL (q)` to the host by marks; return its truth value.

    One true comparison decides ANY, one false comparison ALL; otherwise one unknown makes it
    unknown.
    """
    is_all = isinstance(node.expression, exp.All)
    decided, otherwise = ("false", "true") if is_all else ("true", "false")
    mark = _compared_mark(joiner, node, host, f"IS {decided.upper()}" if is_all else "")
    if unknown_as_false and not is_all:
        return mark
    unknown = _compared_mark(joiner, node, host, "IS NULL")
    return Expr.parse(
        f"CASE WHEN {mark.sql} THEN {decided} WHEN {unknown.sql} THEN CAST(NULL AS BOOLEAN) "
        f"ELSE {otherwise} END"
    )


def _compared_mark(joiner: SubqueryJoiner, node: exp.Binary, host: Host, test: str) -> Expr:
    """Return a mark: true if a row of q compares so."""
    value = joiner.expression(node.this, host)
    correlated = joiner.decorrelate(unwrapped(node.expression.this), host)
    compared = node.copy()
    compared.set("this", exp.Paren(this=value.node))
    compared.set("expression", exp.Paren(this=correlated.outputs[0].node))
    assert isinstance(compared, exp.Expression)
    condition = Expr.parse(f"({Expr.of(compared).sql}) {test}".strip())
    return host.mark_join(
        correlated.relation, [*correlated.correlations, condition], joiner.builder.fresh("mark")
    )


def _join_bounds(joiner: SubqueryJoiner, keyed: KeyedSubquery, host: Host) -> dict[str, str]:
    """Join the bounds of a subquery to the host; return their columns by the names that the
    templates use.

    n: number of rows; c: number of rows that are not NULL; least, most: min and max.
    """
    output = keyed.outputs[0]
    alias = joiner.builder.fresh("bounds")
    calls = {"n": Call("count", None), "c": Call("count", output), "least": Call("min", output),
             "most": Call("max", output)}  # fmt: skip
    measures = tuple(Measure(name, call) for name, call in calls.items())
    keys = tuple(Named(f"k{number}", key) for number, key in enumerate(keyed.inner_keys))
    host.join(
        Aggregate(keyed.relation, keys, measures, alias),
        keyed.join_condition(alias, "k"),
        keyed.join_kind,
    )
    columns = {name: Ref(alias, name).sql for name in calls}
    if keys:
        # A row without a group: the left join leaves the counts NULL.
        columns |= {name: f"COALESCE({columns[name]}, 0)" for name in ("n", "c")}
    return columns


_SYMBOLS = {exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.EQ: "=", exp.NEQ: "<>"}


def _order_template(is_all: bool, symbol: str) -> str:
    """Return the template of an order comparison: `x > ALL` compares with max, `x > ANY` with min.

    A NULL in q or in x makes the result unknown unless another value decides it.
    """
    bound = "most" if (symbol in (">", ">=")) == is_all else "least"
    decided, otherwise = ("false", "true") if is_all else ("true", "false")
    decides = f"NOT ({{x}} {symbol} {{{bound}}})" if is_all else f"{{x}} {symbol} {{{bound}}}"
    return (
        f"CASE WHEN {{n}} = 0 THEN {otherwise} WHEN {decides} THEN {decided} "
        f"WHEN {{n}} > {{c}} OR {{x}} IS NULL THEN CAST(NULL AS BOOLEAN) ELSE {otherwise} END"
    )


def _equality_template(is_all: bool) -> str:
    """Return the template of `x = ALL`: min and max are both x. `x <> ANY` is its negation."""
    decided, otherwise = ("false", "true") if is_all else ("true", "false")
    return (
        f"CASE WHEN {{n}} = 0 THEN {otherwise} WHEN {{x}} <> {{least}} OR {{x}} <> {{most}} THEN {decided} "
        f"WHEN {{n}} > {{c}} OR {{x}} IS NULL THEN CAST(NULL AS BOOLEAN) ELSE {otherwise} END"
    )


# By (is ALL, operator); `x = ANY` and `x <> ALL` are IN and NOT IN.
_TEMPLATES = {
    **{
        (is_all, symbol): _order_template(is_all, symbol)
        for is_all in (True, False)
        for symbol in (">", ">=", "<", "<=")
    },
    (True, "="): _equality_template(True),
    (False, "<>"): _equality_template(False),
}
