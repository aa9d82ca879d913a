"""What a subquery is given by the rows around it.

A subquery that refers to columns of the query around it means something else for each of their values. So it is built
once for all of them, over the distinct values that there are:

    c, LATERAL (SELECT o.id FROM o WHERE o.total > c.bound ORDER BY o.id LIMIT 3)

    D   the values of c.bound, each once
    Q   SELECT o.id, D.bound FROM D, o WHERE o.total > D.bound, the first 3 for each D.bound
    c joined to Q by c.bound IS NOT DISTINCT FROM Q.bound

Each SELECT in the subquery that is given anything has D in its FROM, and carries D's columns to where it is used:
they are group keys, keys of windows, columns of set operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.algebra.expr import Expr, Ref, equated, is_quantified, operands, transform, unwrapped
from millstream.algebra.relation import Aggregate, Join, Named, Relation
from millstream.algebra.types import PgType
from millstream.compiler.clauses.clock import COLUMN
from millstream.compiler.clauses.groups.grouping import Aggregates
from millstream.compiler.clauses.groups.grouping_sets import grouping_sets_of
from millstream.compiler.decorrelate.scope import PLACE, Scope
from millstream.errors import Unsupported

BINDINGS = "__ms_given_"
CLOCK, _ = COLUMN


@dataclass(frozen=True)
class Correlated:
    """A subquery and the conditions that tie it to the row around it."""

    relation: Relation
    outputs: tuple[Expr, ...]
    correlations: tuple[Expr, ...]


@dataclass(frozen=True)
class Bindings:
    """Values of the rows around a subquery."""

    values: tuple[Expr, ...]
    """In terms of those rows."""
    around: Relation
    types: tuple[PgType, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called where they are carried."""
        return tuple(f"{BINDINGS}{n}" for n in range(len(self.values)))

    def rows(self, alias: str) -> Aggregate:
        """Their distinct values."""
        return Aggregate(self.around, tuple(Named(f"k{n}", one) for n, one in enumerate(self.keys)), (), alias)

    @property
    def keys(self) -> tuple[Expr, ...]:
        """What tells the values apart: where 1.0 is equal to 1.00 and looks different, their text."""
        return tuple(Expr.parse(f"CAST({v.sql} AS TEXT)") if v in self.casts else v for v in self.values)

    @property
    def key_types(self) -> tuple[PgType, ...]:
        return tuple(_TEXT if v in self.casts else type_ for v, type_ in zip(self.values, self.types, strict=True))

    @property
    def casts(self) -> dict[Expr, str]:
        """The types of the values that are carried as text."""
        found = zip(self.values, self.types, strict=True)
        return {value: type_.name for value, type_ in found if not _looks_alike(type_)}

    def correlations(self, binding_refs: Iterable[Expr]) -> tuple[Expr, ...]:
        """What ties the rows around to rows that carry the values."""
        return tuple(not_distinct(key, one) for key, one in zip(self.keys, binding_refs, strict=True))

    def joined(self, relation: Relation, scope: Scope, alias: str) -> Relation:
        """Rows beside each of the values, which the scope finds there from here on."""
        rows = self.rows(alias)
        scope.bindings, scope.casts = self.known(alias), self.casts
        return Join(relation, rows)

    def known(self, alias: str) -> dict[Expr, Expr]:
        """What each value is, in the rows under this alias."""
        return {value: Expr.ref(alias, f"k{n}") for n, value in enumerate(self.values)}


_TEXT = PgType(25, "text", "text")
# Types whose equal values look alike.
_ALIKE = frozenset(
    ["bool", "int2", "int4", "int8", "text", "varchar", "date", "time", "timestamp", "timestamptz", "uuid", "oid",
     "bytea", "char", "name"]
)  # fmt: skip


def _looks_alike(type_: PgType) -> bool:
    plain = type_.kind == "enum" or (type_.kind in ("base", "domain") and type_.base in _ALIKE)
    return plain and type_.collation != "nondeterministic"


def not_distinct(one: Expr, other: Expr) -> Expr:
    """Equal, NULLs too."""
    return Expr.parse(f"({one.sql}) IS NOT DISTINCT FROM ({other.sql})")


def outer_columns(query: exp.Expression, scope: Scope) -> dict[Expr, exp.Column]:
    """The columns of the queries around it that a query, or a part of one, refers to, and one place of each.

    The server gives no alias inside a query that something around it has.
    """
    inside = set(_aliases(query))
    merged = {column.name for join in query.find_all(exp.Join) for column in join.args.get("using") or ()}
    found = dict[Expr, exp.Column]()
    for column in query.find_all(exp.Column):
        hidden = column.table in (PLACE, CLOCK, *inside) if column.table else column.name in merged
        value = None if hidden or isinstance(column.this, exp.Star) else scope.peek(column.table, column.name)
        if value is not None:
            found.setdefault(value, column)
    return found


def _aliases(query: exp.Expression) -> Sequence[str]:
    kinds = exp.Table | exp.Subquery | exp.Lateral | exp.Func | exp.CTE
    named = [node for node in query.walk() if isinstance(node, kinds)]
    return [name for node in named for name in (node.alias, node.name if isinstance(node, exp.Table) else "") if name]


def inline_correlated_with(query: exp.Expression, scope: Scope | None) -> exp.Expression:
    """The same with each WITH query that is given anything written where it is used."""
    clause = query.args.get("with_")
    if clause is None or scope is None:
        return query
    query = query.copy()
    for cte in list(query.args["with_"].expressions):
        if outer_columns(cte.this, scope):
            if clause.args.get("recursive"):
                raise Unsupported.construct(
                    "a recursive query that names a column of the query around it",
                    reason="Millstream does not maintain it yet.",
                    way_round="Let it recurse for all values, carry the column along, and join by it.",
                )
            cte.pop()
            query = _written_out(query, cte)
    if not query.args["with_"].expressions:
        query.set("with_", None)
    return query


def _written_out(query: exp.Expression, cte: exp.CTE) -> exp.Expression:
    own = [column.copy() for column in cte.args["alias"].columns]

    def subquery(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Table) or node.db or node.name != cte.alias:
            return node
        bindings = node.args.get("alias")
        columns = [*(bindings.columns if bindings else ()), *own[len(bindings.columns) if bindings else 0 :]]
        alias = exp.TableAlias(this=exp.to_identifier(node.alias_or_name, quoted=True), columns=columns)
        # What is replaced is not looked into: what it is joined to is done here.
        joins = [transform(join, subquery) for join in node.args.get("joins") or ()]
        return exp.Subquery(this=cte.this.copy(), alias=alias, joins=joins)

    return transform(query, subquery)


def refers_to_earlier_items(join: exp.Join, scope: Scope) -> bool:
    """Do parentheses around a join have a LATERAL in them that names what stands before them?"""
    item = join.this
    if join.side or join.args.get("on") or join.args.get("using") or not _is_join(item):
        return False
    joins = unnest_join(item)
    named = any(scope.owner(column) is scope for column in item.find_all(exp.Column))
    return named and item.find(exp.Lateral) is not None and not any(one.side in ("RIGHT", "FULL") for one in joins)


def unnest_join(item: exp.Expression) -> list[exp.Join]:
    """A join in parentheses as its items, one joined after the other."""
    joins = item.args.get("joins") or []
    if _is_join(item):
        return [*unnest_join(item.this), *joins]
    first = item.copy()
    first.set("joins", None)
    return [exp.Join(this=first), *joins]


def _is_join(item: exp.Expression) -> bool:
    return (
        isinstance(item, exp.Subquery) and not item.alias and not isinstance(item.this, exp.Select | exp.SetOperation)
    )


def partition_windows(expression: Expr, keys: Sequence[Expr]) -> Expr:
    """An expression whose windows look at rows of equal keys only."""
    node = expression.node
    wrapper = exp.Paren(this=node)
    for call in wrapper.find_all(exp.Window):
        by = [*(call.args.get("partition_by") or ()), *(key.node for key in keys)]
        call.set("partition_by", by)
    return Expr.of(wrapper.this)


def select_expressions(select: exp.Select) -> list[exp.Expression]:
    """The select list without its names."""
    return [item.this if isinstance(item, exp.Alias) else item for item in select.expressions]


def is_bare_select(select: exp.Select, aggregates: Aggregates) -> bool:
    """Is it a select list and nothing else? Then it has one row: SELECT a.x + 1."""
    more = any(value for name, value in select.args.items() if name not in ("expressions", "kind"))
    return not more and not aggregates.group(select) and not any(one.find(exp.Window) for one in select.expressions)


def and_operands(node: exp.Expression) -> list[exp.Expression]:
    """The parts of an AND, as they are written."""
    return operands(node, exp.And)


def is_correlated_by_equalities(select: exp.Select, scope: Scope, aggregates: Aggregates) -> bool:
    """Is a SELECT given nothing but one side of equalities in its WHERE? Then its own side may stand for it.

    Not where it has a row even of nothing.
    """
    group, where = select.args.get("group"), select.args.get("where")
    if where is None or (aggregates.group(select) and (group is None or grouping_sets_of(group) is not None)):
        return False
    rest = select.copy()
    others = [part for part in and_operands(where.this) if not _is_tie(part, scope)]
    rest.set("where", exp.Where(this=exp.and_(*(one.copy() for one in others))) if others else None)
    return not outer_columns(rest, scope)


def _is_tie(condition: exp.Expression, scope: Scope) -> bool:
    """Does it equate what is given to something else?"""
    if not isinstance(condition, exp.EQ) or is_quantified(condition) or condition.find(exp.Select):
        return False
    bindings = [bool(outer_columns(side, scope)) for side in (condition.this, condition.expression)]
    if bindings[0] == bindings[1]:
        return False
    around, own = (condition.this, condition.expression) if bindings[0] else (condition.expression, condition.this)
    known = [scope.peek(one.table, one.name) for one in around.find_all(exp.Column)]
    return all(one is not None for one in known) and own.find(exp.Column) is not None


def refuse_outer_aggregates(
    columns: Mapping[Expr, exp.Column], query: exp.Expression, scope: Scope, aggregates: Aggregates
) -> None:
    """An aggregate whose columns are all of the query around it is that query's own."""
    for call in query.find_all(exp.Expression):
        if not aggregates.called(call):
            continue
        refs = [scope.peek(column.table, column.name) for column in call.find_all(exp.Column)]
        if refs and all(ref in columns for ref in refs):
            raise Unsupported.construct(
                "an aggregate of the query around it inside a subquery",
                reason="The subquery would have to be computed for each of its values.",
                way_round="Compute the aggregate in a subquery of FROM.",
            )


def correlation_equalities(correlations: Sequence[Expr], relation: Relation) -> list[tuple[Expr, Expr]] | None:
    """Each tie as the (inside, outside) of an equality; None where one is something else."""
    own, found = set(relation.columns), list[tuple[Expr, Expr]]()
    for correlation in correlations:
        sides = equated(correlation) or ()
        inside = [side for side in sides if side.refs and side.refs <= own]
        around = [side for side in sides if not side.refs & own]
        if len(inside) != 1 or len(around) != 1:
            return None
        found.append((inside[0], around[0]))
    return found


def correlate_with(correlation: Expr, value: Expr, own: Expr) -> Expr:
    """The same equality of other things."""
    sign = "=" if isinstance(unwrapped(correlation.tree), exp.EQ) else "IS NOT DISTINCT FROM"
    return Expr.parse(f"{own.sql} {sign} ({value.sql})")


def output_refs(relation: Relation, count: int) -> tuple[tuple[Ref, ...], tuple[Ref, ...]]:
    """The columns that a subquery shows, and the last ones, which it carries."""
    place = len(relation.columns) - count
    return relation.columns[:place], relation.columns[place:]
