"""The clock: a table of one row and one column, which every refresh changes.

    now(), transaction_timestamp(), CURRENT_TIMESTAMP    the column
    CURRENT_DATE, LOCALTIMESTAMP, LOCALTIME              what it is in UTC
    age(x)                                               age(CURRENT_DATE, x), as the server defines it

A SELECT that asks for the time is joined with the clock where it asks: with its FROM, with the side of a join whose ON
asks, with its groups. From there on the time is a column like any other.

Millstream's sessions are in UTC, and so is every stream table: what a day is, or the first of a month, must not depend
on who refreshes. Another zone is written out, (now() AT TIME ZONE 'Europe/Paris')::date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sqlglot import exp

from millstream.algebra.expr import Expr, transform
from millstream.algebra.table import NOW, Table
from millstream.algebra.types import Column, PgType
from millstream.compiler.server.node_tree import Node, Value, walk

CLOCK = Table(
    0,
    "",
    "clock",
    (Column("now", PgType(1184, "timestamp with time zone", "timestamptz"), not_null=True),),
    single=True,
    rows=NOW,
)
# What its column is called in a syntax tree, by alias and name.
COLUMN = ("__ms_clock", "now")

# Functions of the server that tell the time of the transaction, as it prints them.
CLOCK_FUNCTIONS = frozenset(
    {"now()", "transaction_timestamp()", "age(timestamp with time zone)", "age(timestamp without time zone)"}
)
# Up to here SQL's own words tell the time; the others tell who asks.
_LAST_OP = 8

_TIME = Expr.ref(*COLUMN).sql
_LOCAL = f"({_TIME} AT TIME ZONE 'UTC')"
_WORDS: dict[str, str] = {
    "now": _TIME,
    "transaction_timestamp": _TIME,
    "current_timestamp": f"CAST({_TIME} AS TIMESTAMPTZ{{0}})",
    "localtimestamp": f"CAST({_LOCAL} AS TIMESTAMP{{0}})",
    "current_date": f"CAST({_LOCAL} AS DATE)",
    "current_time": f"CAST({_TIME} AS TIMETZ{{0}})",
    "localtime": f"CAST({_LOCAL} AS TIME{{0}})",
}
_KINDS: dict[type[exp.Expression], str] = {
    exp.CurrentTimestamp: "current_timestamp", exp.Localtimestamp: "localtimestamp", exp.CurrentDate: "current_date",
    exp.CurrentTime: "current_time", exp.Localtime: "localtime",
}  # fmt: skip


def reads_clock(tree: Value, functions: Iterable[str]) -> bool:
    """Does an analysed query ask for the time? By the functions it calls, or in SQL's own words."""
    return any(map(tells_time, walk(tree))) or any(name in CLOCK_FUNCTIONS for name in functions)


def tells_time(node: Node) -> bool:
    """Is it one of SQL's own words for the time?"""
    return node.kind == "SQLVALUEFUNCTION" and node.number("op") <= _LAST_OP


def replace_clock_calls(tree: exp.Expression) -> exp.Expression:
    """A syntax tree in which each call is an expression over the clock's column."""

    def tell(node: exp.Expression) -> exp.Expression:
        word = _word(node)
        if word == "age" and len(node.expressions) == 1:
            days = Expr(_WORDS["current_date"]).node
            return exp.Anonymous(this="age", expressions=[days, replace_clock_calls(node.expressions[0])])
        if word not in _WORDS:
            return node
        if word == "current_timestamp" and not node.expressions:
            word = "now"
        digits = f"({node.expressions[0].name})" if node.expressions else ""
        return Expr(_WORDS[word].format(digits)).node

    return transform(tree, tell)


def _word(node: exp.Expression) -> str:
    """The function that a node calls, if it is one of the server's own."""
    if isinstance(node, exp.Anonymous):
        # With a schema before it, it is somebody else's.
        return "" if isinstance(node.parent, exp.Dot) else str(node.name).lower()
    return _KINDS.get(type(node), "")


def restore_clock_calls(tree: exp.Expression) -> exp.Expression:
    """The tree for the server to read: the column is now() again."""

    def call(node: exp.Expression) -> exp.Expression:
        return exp.Anonymous(this="now") if isinstance(node, exp.Column) and _is_column(node) else node

    return transform(tree, call)


def clock_columns(select: exp.Select) -> list[exp.Column]:
    """Where a SELECT itself asks for the time: not in its FROM, not in its subqueries."""
    found = [one for one in select.find_all(exp.Column) if _is_column(one)]
    return [one for one in found if _own(one, select)]


def mentions_clock(node: exp.Expression | None) -> bool:
    """Does an expression ask for the time?"""
    return node is not None and any(_is_column(one) for one in node.find_all(exp.Column))


def is_asked_per_row(column: exp.Column, select: exp.Select, aggregate: Callable[[exp.Expression], bool]) -> bool:
    """Of a SELECT that groups: is it asked of the rows (in WHERE, a key, an aggregate), and not of the groups?"""
    around = list(_around(column, select))
    return any(isinstance(one, exp.Where | exp.Group) or aggregate(one) for one in around)


def _is_column(node: exp.Column) -> bool:
    return (node.table, node.name) == COLUMN


def _own(column: exp.Column, select: exp.Select) -> bool:
    around = list(_around(column, select))
    return not any(isinstance(one, exp.Select | exp.SetOperation | exp.From | exp.Join | exp.Lateral) for one in around)


def _around(node: exp.Expression, select: exp.Select) -> Iterator[exp.Expression]:
    """What stands around a node, up to the SELECT."""
    parent = node.parent
    while isinstance(parent, exp.Expression) and parent is not select:
        yield parent
        parent = parent.parent
