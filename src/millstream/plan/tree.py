"""Choose a spanning tree over the inputs of a join, and the order in which to join.

Demand travels along a tree. Equalities that would close a cycle stay conditions of the body:
cutting a cycle only reads more. Inputs that no equality connects are tied by an edge without
keys, over which everything is demanded.
"""

from __future__ import annotations

from collections import defaultdict

from millstream.plan.block import Edge

# (input, leaf) = (input, leaf)
Pair = tuple[tuple[str, str], tuple[str, str]]


def spanning_tree(names: list[str], pairs: list[Pair]) -> list[Edge]:
    """Edges in join order: each ties one new input to those before it."""
    between = defaultdict[frozenset[str], list[Pair]](list)
    for pair in pairs:
        between[frozenset((pair[0][0], pair[1][0]))].append(pair)
    joined, edges = [names[0]], list[Edge]()
    while len(joined) < len(names):
        edges.append(_next(joined, names, between))
        joined.append(edges[-1].right)
    return edges


def _next(joined: list[str], names: list[str], between: dict[frozenset[str], list[Pair]]) -> Edge:
    waiting = [name for name in names if name not in joined]
    for new in waiting:
        for old in joined:
            if found := between.get(frozenset((old, new))):
                return Edge(old, new, tuple(_oriented(pair, old) for pair in found))
    return Edge(joined[-1], waiting[0])


def _oriented(pair: Pair, left: str) -> tuple[str, str]:
    one, other = pair
    return (one[1], other[1]) if one[0] == left else (other[1], one[1])
