"""The clock: a table of one row and one column, the time, which changes with every refresh.

    now(), transaction_timestamp(), CURRENT_TIMESTAMP    the column
    CURRENT_DATE, LOCALTIMESTAMP, LOCALTIME              what it is in the stream table's time zone
    age(x)                                               age(CURRENT_DATE, x), as the server defines it

A SELECT that reads the time is joined to the clock: its FROM, the side of a join whose ON reads the
time, or its groups. From there on the time is a column like any other.

Where a day begins must not depend on who refreshes: the time zone is one of the settings that are
recorded with the stream table (`postgres/session_settings.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sqlglot import exp

from millstream.algebra.expr import Expr, transform
from millstream.algebra.table import Clock
from millstream.algebra.types import Column, PgType
from millstream.compiler.server.node_tree import Node, Value, walk

CLOCK = Clock(
    (Column("now", PgType(1184, "timestamp with time zone", "timestamptz"), not_null=True),)
)
# Alias and name of its column in a syntax tree.
COLUMN = ("__ms_clock", "now")

# Functions that return the time of the transaction, as the server prints them.
CLOCK_FUNCTIONS = frozenset(
    {
        "now()",
        "transaction_timestamp()",
        "age(timestamp with time zone)",
        "age(timestamp without time zone)",
    }
)
# SQLValueFunction: operations up to this number return the time, the others user and schema names.
_LAST_OP = 8

_TIME = Expr.ref(*COLUMN).sql
_LOCAL = f"CAST({_TIME} AS TIMESTAMP)"
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
    """Return True if an analysed query reads the time, by a function or by a keyword such as
    CURRENT_DATE.
    """
    return any(map(tells_time, walk(tree))) or any(name in CLOCK_FUNCTIONS for name in functions)


def settings(tree: Value, functions: Iterable[str]) -> frozenset[str]:
    """Return the session settings on which the calls that read the time depend: now() has none."""
    zoned = any(map(tells_time, walk(tree))) or any(name.startswith("age(") for name in functions)
    return frozenset({"TimeZone"}) if zoned else frozenset()


def tells_time(node: Node) -> bool:
    """Return True for the keywords of SQL that return the time."""
    return node.kind == "SQLVALUEFUNCTION" and node.number("op") <= _LAST_OP


def replace_clock_calls(tree: exp.Expression) -> exp.Expression:
    """Return a syntax tree with each call that returns the time replaced by an expression over the
    clock's column.
    """

    def replace(node: exp.Expression) -> exp.Expression:
        if _is_item(node):
            return _as_derived_table(node)
        word = _word(node)
        if word == "age" and len(node.expressions) == 1:
            days = Expr(_WORDS["current_date"]).node
            return exp.Anonymous(
                this="age", expressions=[days, replace_clock_calls(node.expressions[0])]
            )
        if word not in _WORDS:
            return node
        if word == "current_timestamp" and not node.expressions:
            word = "now"
        digits = f"({node.expressions[0].name})" if node.expressions else ""
        return Expr(_WORDS[word].format(digits)).node

    return transform(tree, replace)


def _is_item(node: exp.Expression) -> bool:
    """Return True for an item of FROM that is a keyword: FROM CURRENT_DATE AS d."""
    name = node.this if isinstance(node, exp.Table) and not node.db else None
    return (
        isinstance(name, exp.Identifier) and not name.quoted and name.name.isupper()
        and name.name.lower() in _WORDS
    )  # fmt: skip


def _as_derived_table(item: exp.Expression) -> exp.Expression:
    """Return a keyword in FROM as a subquery of one row."""
    value = Expr(_WORDS[item.this.name.lower()].format("")).node
    named = exp.alias_(value, item.args["alias"].columns[0].name, quoted=True)
    return exp.Subquery(
        this=exp.Select(expressions=[named]),
        alias=item.args["alias"].copy(),
        joins=item.args.get("joins"),
    )


def _word(node: exp.Expression) -> str:
    """Return the lower-case name of the built-in function or keyword that a node calls, or ''."""
    if isinstance(node, exp.Anonymous):
        # A call with a schema is a user's function.
        return "" if isinstance(node.parent, exp.Dot) else str(node.name).lower()
    return _KINDS.get(type(node), "")


def restore_clock_calls(tree: exp.Expression) -> exp.Expression:
    """Return the tree as the server can read it: the clock's column is now() again."""

    def call(node: exp.Expression) -> exp.Expression:
        return (
            exp.Anonymous(this="now")
            if isinstance(node, exp.Column) and _is_clock_column(node)
            else node
        )

    return transform(tree, call)


def clock_columns(select: exp.Select) -> list[exp.Column]:
    """Return the references to the clock in the clauses of a SELECT, without those in its FROM and
    its subqueries.
    """
    columns = [column for column in select.find_all(exp.Column) if _is_clock_column(column)]
    return [column for column in columns if _is_in_own_clause(column, select)]


def mentions_clock(node: exp.Expression | None) -> bool:
    """Return True if an expression reads the time."""
    return node is not None and any(map(_is_clock_column, node.find_all(exp.Column)))


def is_read_per_row(
    column: exp.Column, select: exp.Select, aggregate: Callable[[exp.Expression], bool]
) -> bool:
    """Return True if a grouping SELECT reads the time per row (in WHERE, a key, an aggregate), not
    per group.
    """
    ancestors = _ancestors(column, select)
    return any(isinstance(node, exp.Where | exp.Group) or aggregate(node) for node in ancestors)


def _is_clock_column(node: exp.Column) -> bool:
    return (node.table, node.name) == COLUMN


def _is_in_own_clause(column: exp.Column, select: exp.Select) -> bool:
    foreign = exp.Select | exp.SetOperation | exp.From | exp.Join | exp.Lateral
    return not any(isinstance(node, foreign) for node in _ancestors(column, select))


def _ancestors(node: exp.Expression, select: exp.Select) -> Iterator[exp.Expression]:
    """Yield the ancestors of a node, up to the SELECT."""
    parent = node.parent
    while isinstance(parent, exp.Expression) and parent is not select:
        yield parent
        parent = parent.parent
