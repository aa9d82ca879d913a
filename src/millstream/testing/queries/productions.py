"""The productions of PostgreSQL's SELECT that a query uses, for telling which of them the generator
makes.

Most are read off the server's analysed tree; those that leave no trace in it (BETWEEN is an AND
there) off the text. A view's own text counts with the query that reads it.
`docs/explain/random-queries.md` has the table; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.compiler.server.node_tree import Node

_STRING = re.compile(r"'(?:[^']|'')*'")


@dataclass(frozen=True)
class Seen:
    """A query as it is written, without its strings, and as the server understands it."""

    text: str
    nodes: Sequence[Node]


Test = Callable[[Seen], bool]


def seen(text: str, nodes: Sequence[Node]) -> Seen:
    """Return a query to look at."""
    return Seen(_STRING.sub("''", text), nodes)


def productions_of(query: Seen) -> frozenset[str]:
    """Return the productions that a query uses."""
    return frozenset(name for name, test in PRODUCTIONS.items() if test(query))


def _written(pattern: str) -> Test:
    found = re.compile(pattern, re.IGNORECASE | re.DOTALL)
    return lambda query: found.search(query.text) is not None


def _node(kind: str, test: Callable[[Node], bool] = lambda node: True) -> Test:
    return lambda query: any(node.kind == kind and test(node) for node in query.nodes)


def _number(kind: str, field: str, value: int) -> Test:
    return _node(kind, lambda node: node.number(field) == value)


def _filled(kind: str, field: str) -> Test:
    return _node(kind, lambda node: node.filled(field))


def _flag(kind: str, field: str) -> Test:
    return _node(kind, lambda node: node.flag(field))


def _item(number: int) -> Test:
    return lambda query: any(
        n.kind in ("RTE", "RANGETBLENTRY") and n.number("rtekind") == number for n in query.nodes
    )


def _frame(words: str) -> Test:
    return _written(rf"\b{words}\b.*\b(PRECEDING|FOLLOWING|CURRENT ROW)")


PRODUCTIONS: dict[str, Test] = {
    # select list
    "DISTINCT": _written(r"SELECT DISTINCT (?!ON)"),
    "DISTINCT ON": _flag("QUERY", "hasDistinctOn"),
    "SELECT *": _written(r"SELECT (\w+\.)?\*"),
    "SELECT without columns": _written(r"SELECT FROM"),
    "set-returning function in the list": _flag("QUERY", "hasTargetSRFs"),
    # FROM
    "subquery in FROM": _item(1),
    "LATERAL": _written(r"\bLATERAL \("),
    "function in FROM": _item(3),
    "ROWS FROM": _written(r"ROWS FROM"),
    "WITH ORDINALITY": _written(r"WITH ORDINALITY"),
    "VALUES": _item(5),
    "column aliases of an item": _written(r"\) AS \w+ \(\w+"),
    "ONLY": _written(r"FROM ONLY"),
    "TABLESAMPLE": _written(r"TABLESAMPLE"),
    "CROSS JOIN": _written(r"CROSS JOIN"),
    "INNER JOIN": _written(r"INNER JOIN"),
    "LEFT JOIN": _written(r"LEFT JOIN"),
    "RIGHT JOIN": _written(r"RIGHT JOIN"),
    "FULL JOIN": _written(r"FULL JOIN"),
    "NATURAL JOIN": _flag("JOINEXPR", "isNatural"),
    "USING": _written(r"USING \("),
    "USING ... AS": _filled("JOINEXPR", "join_using_alias"),
    "join in parentheses": _written(r"JOIN \((?!SELECT|WITH|VALUES)\w"),
    "XMLTABLE, JSON_TABLE": _item(4),
    # grouping
    "GROUP BY": _written(r"GROUP BY"),
    "ROLLUP": _written(r"ROLLUP \("),
    "CUBE": _written(r"CUBE \("),
    "GROUPING SETS": _written(r"GROUPING SETS"),
    "GROUPING()": _node("GROUPINGFUNC"),
    "GROUP BY DISTINCT": _flag("QUERY", "groupDistinct"),
    "HAVING": _written(r"\bHAVING\b"),
    # set operations, WITH, order
    "UNION": _written(r"\bUNION (?!ALL)"),
    "UNION ALL": _written(r"\bUNION ALL"),
    "INTERSECT": _written(r"\bINTERSECT (?!ALL)"),
    "INTERSECT ALL": _written(r"\bINTERSECT ALL"),
    "EXCEPT": _written(r"\bEXCEPT (?!ALL)"),
    "EXCEPT ALL": _written(r"\bEXCEPT ALL"),
    "WITH": _written(r"\bWITH (?!ORDINALITY|TIES|RECURSIVE)\w"),
    "WITH RECURSIVE": _flag("QUERY", "hasRecursive"),
    "MATERIALIZED": _written(r"AS (NOT )?MATERIALIZED"),
    "SEARCH": _filled("COMMONTABLEEXPR", "search_clause"),
    "CYCLE": _filled("COMMONTABLEEXPR", "cycle_clause"),
    "LIMIT": _written(r"\bLIMIT\b"),
    "OFFSET": _written(r"\bOFFSET\b"),
    "FETCH FIRST ... WITH TIES": _written(r"WITH TIES"),
    "NULLS FIRST, NULLS LAST": _written(r"\bNULLS (FIRST|LAST)"),
    "FOR UPDATE": _filled("QUERY", "rowMarks"),
    # subqueries in expressions
    "EXISTS": _number("SUBLINK", "subLinkType", 0),
    "ALL (subquery)": _number("SUBLINK", "subLinkType", 1),
    "ANY (subquery), IN (subquery)": _number("SUBLINK", "subLinkType", 2),
    "row compared with a subquery": _number("SUBLINK", "subLinkType", 3),
    "scalar subquery": _number("SUBLINK", "subLinkType", 4),
    "ARRAY(subquery)": _number("SUBLINK", "subLinkType", 6),
    # expressions
    "CASE WHEN": _written(r"\bCASE WHEN"),
    "CASE x WHEN": _written(r"\bCASE (?!WHEN)"),
    "COALESCE": _node("COALESCEEXPR"),
    "NULLIF": _node("NULLIFEXPR"),
    "GREATEST, LEAST": _node("MINMAXEXPR"),
    "IS NULL": _node("NULLTEST"),
    "IS TRUE, IS UNKNOWN": _node("BOOLEANTEST"),
    "IS DISTINCT FROM": _node("DISTINCTEXPR"),
    "BETWEEN": _written(r"\bBETWEEN (?!SYMMETRIC|UNBOUNDED|\d|CURRENT)"),
    "BETWEEN SYMMETRIC": _written(r"BETWEEN SYMMETRIC"),
    "IN (list)": _written(r"\bIN \((?!SELECT|WITH|VALUES)"),
    "ANY (array)": _written(r"= ANY \(ARRAY"),
    "ALL (array)": _written(r"ALL \((ARRAY|\w+\.\w+ \|\|)"),
    "LIKE": _written(r"\bLIKE\b"),
    "ILIKE": _written(r"\bILIKE\b"),
    "SIMILAR TO": _written(r"SIMILAR TO"),
    "regular expression": _written(r" !?~\*? "),
    "COLLATE": _node("COLLATEEXPR"),
    "AT TIME ZONE": _written(r"AT TIME ZONE"),
    "row comparison": _node("ROWCOMPAREEXPR"),
    "row constructor": _node("ROWEXPR"),
    "row IS NULL": _flag("NULLTEST", "argisrow"),
    "ARRAY[...]": _node("ARRAYEXPR"),
    "subscript": _node("SUBSCRIPTINGREF"),
    "whole-row reference": _node("VAR", lambda node: node.word("varattno") == "0"),
    "SQL/JSON constructors": _node("JSONCONSTRUCTOREXPR"),
    # aggregates and windows
    "aggregate": _node("AGGREF"),
    "aggregate FILTER": _filled("AGGREF", "aggfilter"),
    "aggregate DISTINCT": _filled("AGGREF", "aggdistinct"),
    "aggregate ORDER BY": _filled("AGGREF", "aggorder"),
    "WITHIN GROUP": _written(r"WITHIN GROUP"),
    "window function": _node("WINDOWFUNC"),
    "window FILTER": _filled("WINDOWFUNC", "aggfilter"),
    "WINDOW clause": _written(r"\bWINDOW \w+ AS"),
    "window that extends a named one": _written(r"OVER \(w\b"),
    "frame without BETWEEN": _written(r"(ROWS|RANGE|GROUPS) (UNBOUNDED|\d+|CURRENT)"),
    "frame by ROWS": _frame("ROWS"),
    "frame by RANGE": _frame("RANGE"),
    "frame by GROUPS": _frame("GROUPS"),
    "EXCLUDE of a frame": _written(r"EXCLUDE (CURRENT|GROUP|TIES)"),
}
