"""The place of a syntax node in the text that the user wrote: its first character, counted from 1; 0 if unknown.

sqlglot copies a node's metadata with the node, so a place survives the rewriting of a tree.

>>> tree = parse_with_places("SELECT a + lower(b) FROM t")
>>> [place_of(node) for node in tree.find_all(exp.Add, exp.Anonymous)]
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

_PLACE = "place"


def place_of(node: exp.Expr) -> int:
    """Return the place of a node; 0 if it is unknown."""
    return int(node._meta.get(_PLACE, 0)) if node._meta else 0


def is_placed(node: exp.Expr) -> bool:
    """Return True if a node has a place, or is known to have none of its own: its parts may."""
    return node._meta is not None and _PLACE in node._meta


def set_place(node: exp.Expr, place: int) -> None:
    """Give a node a place."""
    node.meta[_PLACE] = place


def set_places(tree: exp.Expression, place: int) -> exp.Expression:
    """Give all nodes of a tree one place, if it is known: that of the name by which a view is read."""
    for node in tree.walk() if place else ():
        set_place(node, place)
    return tree


def parse_with_places(text: str) -> exp.Expression:
    """Return the syntax tree of a statement, each node with its place."""
    tree = sqlglot.parse_one(text, read=_PLACING)
    assert isinstance(tree, exp.Expression)
    for node in reversed(list(tree.walk())):
        _include_children(node)
    return tree


def _include_children(node: exp.Expr) -> None:
    """Let a node begin no later than the first of its parts."""
    known = [place for place in (place_of(node), *map(place_of, node.iter_expressions())) if place]
    if known:
        set_place(node, min(known))


def _placing(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Return a parse method that gives its node the place of the token at which it began."""

    @functools.wraps(parse)
    def placed(self: Any, *args: Any, **options: Any) -> Any:
        begin = self._curr.start + 1 if self._curr else 0
        given = [one for one in (*args, *options.values()) if isinstance(one, exp.Expr)]
        made = parse(self, *args, **options)
        if isinstance(made, list):
            _begin_list(made, begin)
        # A method that continues a node returns that node, or one around it.
        elif begin and isinstance(made, exp.Expr) and not any(made is one for one in given):
            places = [begin, *map(place_of, given), place_of(made)]
            set_place(made, min(place for place in places if place))
        return made

    return placed


def _begin_list(nodes: list[Any], begin: int) -> None:
    """Let a list begin at its first node, unless a parse method has placed that: FOR UPDATE."""
    if nodes and isinstance(nodes[0], exp.Expr) and not place_of(nodes[0]):
        set_place(nodes[0], begin)


def _parse_methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the parse methods that begin at their node; those of parentheses begin before it."""
    for name in dir(Verbatim.Parser):
        if name.startswith("_parse_") and not name.startswith("_parse_wrapped"):
            yield name, getattr(Verbatim.Parser, name)


class _Placing(Verbatim):
    """PostgreSQL's dialect; its parser notes where nodes begin."""

    class Parser(Verbatim.Parser):
        pass


for _name, _method in _parse_methods():
    if callable(_method):
        setattr(_Placing.Parser, _name, _placing(_method))

_PLACING = _Placing()
