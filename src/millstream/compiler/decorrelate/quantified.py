"""IN, ANY and ALL of a subquery.

x IN (q), x = ANY (q)       a mark by x = y; with NULLs about, two more marks tell false from unknown
x > ALL (q), x < ANY (q)    of the least and the greatest of q, and how many there are, joined
"""

from __future__ import annotations

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, unwrapped
from millstream.algebra.relation import Aggregate, Call, Filter, Measure, Named, Project, Relation
from millstream.compiler.decorrelate.attach import Host, KeyedSubquery, SubqueryJoiner
from millstream.compiler.decorrelate.bindings import Correlated
from millstream.compiler.decorrelate.scope import never_null
from millstream.compiler.workaround import TWO_STEPS
from millstream.errors import Unsupported


def in_mark(joining: SubqueryJoiner, node: exp.In, host: Host, *, strict: bool) -> Expr:
    """x IN (q): a mark. `strict`ly where unknown is as good as false; otherwise NULLs are told apart."""
    left = unwrapped(node.this)
    values = [joining.expression(one, host) for one in (left.expressions if isinstance(left, exp.Tuple) else [left])]
    query = node.args["query"].this
    correlated = joining.correlated(query, host)
    equal = [Expr.parse(f"({v.sql}) = ({o.sql})") for v, o in zip(values, correlated.outputs, strict=True)]
    met = host.met(correlated.relation, [*correlated.correlations, *equal], joining.builder.fresh("mark"))
    sure = all(_sure(correlated.relation, o) for o in correlated.outputs) and all(
        _sure(host.relation, v) for v in values
    )
    if strict or sure:
        return met
    unknown = _unknown(joining, query, values, host)
    return Expr.parse(f"CASE WHEN {met.sql} THEN true WHEN {unknown.sql} THEN CAST(NULL AS BOOLEAN) ELSE false END")


def rewrite_as_in(node: exp.Binary) -> exp.In:
    """x = ANY (q) is x IN (q); x <> ALL (q) is its opposite."""
    query = unwrapped(node.expression.this)
    asked = query if isinstance(query, exp.Subquery) else exp.Subquery(this=query.copy())
    return exp.In(this=node.this.copy(), query=asked)


def _unknown(joining: SubqueryJoiner, query: exp.Expression, values: list[Expr], host: Host) -> Expr:
    """Where nothing is equal: is there something that may be, for a NULL on either side?"""
    correlated = joining.correlated(query, host)
    if len(values) == 1 and not correlated.correlations:
        return _unknown_alone(joining, query, values[0], correlated, host)
    pairs = zip(values, correlated.outputs, strict=True)
    maybe = [Expr.parse(f"(({v.sql}) = ({o.sql})) IS NOT FALSE") for v, o in pairs]
    return host.met(correlated.relation, [*correlated.correlations, *maybe], joining.builder.fresh("mark"))


def _unknown_alone(
    joining: SubqueryJoiner, query: exp.Expression, value: Expr, correlated: Correlated, host: Host
) -> Expr:
    """Of one column and nothing else: is there a NULL, or is the value NULL and there is anything?"""
    parts = []
    if not _sure(correlated.relation, correlated.outputs[0]):
        nulls = Filter(correlated.relation, Expr.parse(f"({correlated.outputs[0].sql}) IS NULL"))
        parts.append(_some(joining, nulls, host))
    if not _sure(host.relation, value):
        parts.append(f"(({value.sql}) IS NULL AND {_some(joining, joining.correlated(query, host).relation, host)})")
    return Expr.parse(f"({' OR '.join(parts)})")


def _some(joining: SubqueryJoiner, relation: Relation, host: Host) -> str:
    """Whether there is any row: a count that is kept, so that only its coming and going is told on."""
    counted = Aggregate(relation, (), (Measure("m0", Call("count", None)),), joining.builder.fresh("n"))
    some = Project(counted, (Named("some", Expr.parse(f'"{counted.alias}"."m0" > 0')),), joining.builder.fresh("some"))
    host.join(some, None, "inner")
    return Ref(some.alias, "some").sql


def _sure(relation: Relation | None, value: Expr) -> bool:
    ref = value.as_ref
    return ref is not None and relation is not None and never_null(relation, ref)


def quantified_comparison(joining: SubqueryJoiner, node: exp.Expression, host: Host) -> Expr:
    """x > ALL (q): of the least and the greatest of q, and how many there are."""
    assert isinstance(node, exp.Binary)
    asked = node.expression
    symbol = _SYMBOLS.get(type(node))
    value = joining.expression(node.this, host)
    query = unwrapped(asked.this)
    if symbol is None:
        raise Unsupported.construct(
            "this operator with ANY or ALL",
            reason="Millstream does not maintain it yet.",
            way_round=TWO_STEPS,
        )
    bounds = _bounds(joining, joining.keyed(query, host), host)
    return Expr.parse(_QUANTIFIED[isinstance(asked, exp.All), symbol].format(x=f"({value.sql})", **bounds))


def _bounds(joining: SubqueryJoiner, keyed: KeyedSubquery, host: Host) -> dict[str, str]:
    """How many there are, how many are not NULL, the least and the greatest of them."""
    output, alias = keyed.outputs[0], joining.builder.fresh("bounds")
    calls = {"n": Call("count", None), "c": Call("count", output), "least": Call("min", output),
             "most": Call("max", output)}  # fmt: skip
    measures = tuple(Measure(name, call) for name, call in calls.items())
    keys = tuple(Named(f"k{n}", own) for n, own in enumerate(keyed.own))
    host.join(Aggregate(keyed.relation, keys, measures, alias), keyed.condition(alias, "k"), keyed.kind)
    found = {name: Ref(alias, name).sql for name in calls}
    counts = {name: f"COALESCE({found[name]}, 0)" for name in ("n", "c")}
    return {**found, **counts} if keyed.own else found


_SYMBOLS = {exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.EQ: "=", exp.NEQ: "<>"}


def _ordered(every: bool, symbol: str) -> str:
    """x > ALL: compare with the greatest; x > ANY: with the least. NULLs make it unknown unless it is decided."""
    far = "most" if (symbol in (">", ">=")) == every else "least"
    decided, otherwise = ("false", "true") if every else ("true", "false")
    hit = f"NOT ({{x}} {symbol} {{{far}}})" if every else f"{{x}} {symbol} {{{far}}}"
    return (
        f"CASE WHEN {{n}} = 0 THEN {otherwise} WHEN {hit} THEN {decided} "
        f"WHEN {{n}} > {{c}} OR {{x}} IS NULL THEN CAST(NULL AS BOOLEAN) ELSE {otherwise} END"
    )


def _same(every: bool, symbol: str) -> str:
    """x = ALL: all are one and the same, and it is x. x <> ANY is its opposite."""
    decided, otherwise = ("false", "true") if every else ("true", "false")
    return (
        f"CASE WHEN {{n}} = 0 THEN {otherwise} WHEN {{x}} <> {{least}} OR {{x}} <> {{most}} THEN {decided} "
        f"WHEN {{n}} > {{c}} OR {{x}} IS NULL THEN CAST(NULL AS BOOLEAN) ELSE {otherwise} END"
    )


# Is it ALL? and the operator.
_QUANTIFIED = {
    **{(every, symbol): _ordered(every, symbol) for every in (True, False) for symbol in (">", ">=", "<", "<=")},
    (True, "="): _same(True, "="),
    (False, "<>"): _same(False, "<>"),
}
