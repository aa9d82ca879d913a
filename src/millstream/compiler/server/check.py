"""Refuse constructs that cannot be maintained, with reason and workaround.

The check reads the server's analysed tree, so a name that only looks like a construct is not
refused. `REFUSALS` lists the constructs in the order in which they are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from millstream.compiler.clauses.clock import tells_time
from millstream.compiler.server.node_tree import Node, Value, walk
from millstream.errors import Unsupported

_LATER = "Millstream does not maintain it yet."


@dataclass(frozen=True)
class Refusal:
    """A construct that is refused, and the test that recognizes its node."""

    what: str
    matches: Callable[[Node], bool]
    written: tuple[type[exp.Expr], ...]
    """The syntax nodes that it is in the text."""
    reason: str = _LATER
    way_round: str = "Move it into a view over the stream table."


def _query(test: Callable[[Node], bool]) -> Callable[[Node], bool]:
    return lambda node: node.kind == "QUERY" and test(node)


def _ranged(test: Callable[[Node], bool]) -> Callable[[Node], bool]:
    return lambda node: node.kind in ("RTE", "RANGETBLENTRY") and test(node)


REFUSALS: tuple[Refusal, ...] = (
    Refusal("a data-modifying statement in WITH", _query(lambda q: q.flag("hasModifyingCTE")),
            (exp.DML,),
            "The query of a stream table only reads.", "Run the statement on its own."),
    Refusal("FOR UPDATE or FOR SHARE", _query(lambda q: q.filled("rowMarks")), (exp.Lock,),
            "A stream table takes no row locks.", "Leave it out."),
    Refusal("TABLESAMPLE", _ranged(lambda r: r.filled("tablesample")), (exp.TableSample,),
            "A sample differs each time.", "Leave it out."),
    Refusal("current_user and its like", lambda node: node.kind == "SQLVALUEFUNCTION" and not tells_time(node),
            (exp.CurrentUser, exp.CurrentRole, exp.SessionUser, exp.CurrentSchema, exp.CurrentCatalog),
            "Its value depends on the role that runs the query.",
            "Write the name itself, or filter in a view over the stream table."),
)  # fmt: skip


def check(tree: Value, written: exp.Expression | None = None) -> None:
    """Raise Unsupported if an analysed query contains a refused construct; `written` is its tree
    with places.
    """
    nodes = list(walk(tree))
    for refusal in REFUSALS:
        if any(refusal.matches(node) for node in nodes):
            raise Unsupported.construct(
                refusal.what,
                reason=refusal.reason,
                way_round=refusal.way_round,
                node=written.find(*refusal.written) if written else None,
            )
