"""Refuse constructs that cannot be maintained, with position, reason and workaround.

The check reads the server's analysed tree, so a name that only looks like a construct is not refused. `REFUSALS` lists
the constructs in the order in which they are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.compiler.clauses.clock import tells_time
from millstream.compiler.server import position
from millstream.compiler.server.node_tree import Node, Value, walk
from millstream.errors import Unsupported

_LATER = "Millstream does not maintain it yet."


@dataclass(frozen=True)
class Refusal:
    """A construct that is refused, and the test that recognizes its node."""

    what: str
    matches: Callable[[Node], bool]
    words: tuple[str, ...]
    reason: str = _LATER
    way_round: str = "Move it into a view over the stream table."


def _query(test: Callable[[Node], bool]) -> Callable[[Node], bool]:
    return lambda node: node.kind == "QUERY" and test(node)


def _ranged(test: Callable[[Node], bool]) -> Callable[[Node], bool]:
    return lambda node: node.kind in ("RTE", "RANGETBLENTRY") and test(node)


def _range(number: int) -> Callable[[Node], bool]:
    return _ranged(lambda node: node.number("rtekind") == number)


REFUSALS: tuple[Refusal, ...] = (
    Refusal("a data-modifying statement in WITH", _query(lambda q: q.flag("hasModifyingCTE")),
            ("INSERT", "UPDATE", "DELETE", "MERGE"),
            "The query of a stream table only reads.", "Run the statement on its own."),
    Refusal("FOR UPDATE or FOR SHARE", _query(lambda q: q.filled("rowMarks")), ("FOR",),
            "A stream table takes no row locks.", "Leave it out."),
    Refusal("TABLESAMPLE", _ranged(lambda r: r.filled("tablesample")), ("TABLESAMPLE",),
            "A sample differs each time.", "Leave it out."),
    Refusal("XMLTABLE or JSON_TABLE", _range(4), ("XMLTABLE", "JSON_TABLE")),
    Refusal("current_user and its like", lambda node: node.kind == "SQLVALUEFUNCTION" and not tells_time(node),
            ("CURRENT_USER", "CURRENT_ROLE", "SESSION_USER", "USER", "CURRENT_SCHEMA", "CURRENT_CATALOG"),
            "Its value depends on the role that runs the query.",
            "Write the name itself, or filter in a view over the stream table."),
)  # fmt: skip


def check(tree: Value, query: str) -> None:
    """Raise Unsupported if an analysed query contains a refused construct."""
    nodes = list(walk(tree))
    for refusal in REFUSALS:
        if any(refusal.matches(node) for node in nodes):
            where = position.find(query, *refusal.words)
            raise Unsupported.construct(
                refusal.what,
                reason=refusal.reason,
                way_round=refusal.way_round,
                position=where,
                excerpt=position.excerpt(query, where),
            )
