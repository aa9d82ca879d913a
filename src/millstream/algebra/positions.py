"""The position of a syntax node in the text that the user wrote: its first character, counted from
1; 0 if unknown.

sqlglot copies a node's metadata with the node, so a position survives the rewriting of a tree.

>>> tree = parse_with_positions("SELECT a + lower(b) FROM t")
>>> [position_of(node) for node in tree.find_all(exp.Add, exp.Anonymous)]
[8, 12]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

# sqlglot's parse methods differ in their parameters, and are only called on.
from typing import Any

import sqlglot
from sqlglot import exp

from millstream.algebra.dialect import Verbatim

_POSITION = "position"


def position_of(node: exp.Expr) -> int:
    """Return the position of a node; 0 if it is unknown."""
    return int(node._meta.get(_POSITION, 0)) if node._meta else 0


def has_position(node: exp.Expr) -> bool:
    """Return True if a node has a position, or is known to have none of its own: its parts may."""
    return node._meta is not None and _POSITION in node._meta


def set_position(node: exp.Expr, position: int) -> None:
    """Give a node a position."""
    node.meta[_POSITION] = position


def set_positions(tree: exp.Expression, position: int) -> exp.Expression:
    """Give all nodes of a tree one position, if it is known: that of the name by which a view is
    read.
    """
    for node in tree.walk() if position else ():
        set_position(node, position)
    return tree


def parse_with_positions(text: str) -> exp.Expression:
    """Return the syntax tree of a statement, each node with its position."""
    tree = sqlglot.parse_one(text, read=_TRACKING)
    assert isinstance(tree, exp.Expression)
    for node in reversed(list(tree.walk())):
        _include_children(node)
    return tree


def _include_children(node: exp.Expr) -> None:
    """Let a node begin no later than the first of its parts."""
    known = [
        position
        for position in (position_of(node), *map(position_of, node.iter_expressions()))
        if position
    ]
    if known:
        set_position(node, min(known))


def _tracking(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Return a parse method that gives its node the position of the token at which it began."""

    @functools.wraps(parse)
    def tracked(self: Any, *args: Any, **options: Any) -> Any:
        begin = self._curr.start + 1 if self._curr else 0
        given = [one for one in (*args, *options.values()) if isinstance(one, exp.Expr)]
        made = parse(self, *args, **options)
        if isinstance(made, list):
            _begin_list(made, begin)
        # A method that continues a node returns that node, or one around it.
        elif begin and isinstance(made, exp.Expr) and not any(made is one for one in given):
            positions = [begin, *map(position_of, given), position_of(made)]
            set_position(made, min(position for position in positions if position))
        return made

    return tracked


def _begin_list(nodes: list[Any], begin: int) -> None:
    """Let a list begin at its first node, unless a parse method has placed that: FOR UPDATE."""
    if nodes and isinstance(nodes[0], exp.Expr) and not position_of(nodes[0]):
        set_position(nodes[0], begin)


def _parse_methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the parse methods that begin at their node; those of parentheses begin before it."""
    for name in dir(Verbatim.Parser):
        if name.startswith("_parse_") and not name.startswith("_parse_wrapped"):
            yield name, getattr(Verbatim.Parser, name)


class _Tracking(Verbatim):
    """PostgreSQL's dialect; its parser notes where nodes begin."""

    class Parser(Verbatim.Parser):
        pass


for _name, _method in _parse_methods():
    if callable(_method):
        setattr(_Tracking.Parser, _name, _tracking(_method))

_TRACKING = _Tracking()
