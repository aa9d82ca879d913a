"""Find the place where a query calls a function: by name, by an operator, by a cast, or in a
conversion by text.

Which function a call means is not in the text: date_trunc('day', x) is another one for another type
of x. So where several nodes may call it, each is replaced by NULL in turn, and the server is asked
whether it is called less often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from sqlglot import exp

from millstream.algebra.dialect import printed
from millstream.compiler.clauses.groups.grouping import function_name
from millstream.compiler.server import queries
from millstream.compiler.server.node_tree import Node, Value, result_type, walk
from millstream.compiler.server.queries import Canonical, Function
from millstream.errors import QueryError
from millstream.postgres.connection import Connection


def find_call(
    conn: Connection, function: Function, canonical: Canonical, tree: exp.Expression
) -> exp.Expr | None:
    """Return the syntax node of a query that calls a function; None if it cannot be told."""
    named = _calls_by_name(function, tree)
    if len(named) == 1:
        return named[0]
    nodes = named or list(tree.find_all(exp.Binary, exp.Cast, bfs=False))
    called = _called(conn, function.oid)
    calls = called.number(canonical.tree)
    if not calls or len(nodes) * sum(1 for _ in tree.walk()) > _MOST_WORK:
        return None
    result = _result_type(conn, function.oid)
    types = [printed(node.to) if isinstance(node, exp.Cast) else result for node in nodes]
    tried = zip(nodes, types, strict=True)
    around = [
        node for node, type_ in tried if _calls_without(conn, called, tree, node, type_) < calls
    ]
    return next((node for node in around if not _contains_another(node, around)), None)


# Each node tried is a question to the server, which takes as long as the query is large. Their
# product is limited: some two seconds.
_MOST_WORK = 20_000


def _contains_another(node: exp.Expr, others: Sequence[exp.Expr]) -> bool:
    return any(part is other for part in node.walk() if part is not node for other in others)


def _calls_by_name(function: Function, tree: exp.Expression) -> list[exp.Expr]:
    """Return the calls of any function of that name, each with its schema."""
    name = function.called.split(".")[-1]
    calls = [
        node for node in tree.find_all(exp.Func, exp.Dot, bfs=False) if _own_name(node) == name
    ]
    return [call for call in calls if not any(call.parent is other for other in calls)]


def _own_name(call: exp.Expr) -> str:
    return function_name(call).split(".")[-1]


def _calls_without(
    conn: Connection, called: Called, tree: exp.Expression, node: exp.Expr, type_: str
) -> int:
    """Return how often a query calls a function if each node equal to this one is NULL; many times
    if it is invalid.
    """
    changed = tree.transform(lambda other: _null(type_) if other == node else other)
    try:
        return called.number(queries.reread(conn, printed(changed)).tree)
    except (QueryError, psycopg.Error):
        return _MANY


_MANY = 1_000_000


def _null(type_: str) -> exp.Expression:
    return exp.Cast(this=exp.Null(), to=exp.DataType.build(type_, dialect="postgres", udt=True))


def _result_type(conn: Connection, oid: int) -> str:
    query = "SELECT prorettype::pg_catalog.regtype::text FROM pg_catalog.pg_proc WHERE oid = %s"
    return str(conn.execute(query, (oid,)).fetchall()[0][0])


@dataclass(frozen=True)
class Called:
    """A function, and the types whose values it prints or reads."""

    oid: int
    printed: frozenset[int]
    read: frozenset[int]

    def number(self, tree: Value) -> int:
        """Return how often a query calls the function, in conversions by text too."""
        return sum(self._calls(node) for node in walk(tree))

    def _calls(self, node: Node) -> int:
        named = sum(node.number(name) == self.oid for name in _CALLED)
        return named + (node.kind == "COERCEVIAIO" and self._converts(node))

    def _converts(self, node: Node) -> bool:
        argument = node.fields.get("arg")
        from_type = result_type(argument) if isinstance(argument, Node) else 0
        return from_type in self.printed or node.number("resulttype") in self.read


_CALLED: Sequence[str] = ("funcid", "opfuncid", "aggfnoid", "winfnoid")


def _called(conn: Connection, oid: int) -> Called:
    rows = conn.execute(
        """
        SELECT oid::int8, typoutput = %(oid)s, typinput = %(oid)s FROM pg_catalog.pg_type
        WHERE typoutput = %(oid)s OR typinput = %(oid)s
        """,
        {"oid": oid},
    ).fetchall()
    prints = frozenset(type_ for type_, prints, _ in rows if prints)
    return Called(oid, prints, frozenset(type_ for type_, _, reads in rows if reads))
