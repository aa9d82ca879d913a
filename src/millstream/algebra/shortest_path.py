"""Find the shortest path between two nodes of a directed graph, breadth first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def shortest_path(
    start: Node, is_end: Callable[[Node], bool], following: Callable[[Node], Iterable[Node]]
) -> tuple[Node, ...]:
    """Return the nodes on the shortest way from `start` to an end, both included; empty when none
    is reached.
    """
    came_from: dict[Node, Node | None] = {start: None}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if is_end(node):
            return _way_to(node, came_from)
        for following_node in following(node):
            if following_node not in came_from:
                came_from[following_node] = node
                waiting.append(following_node)
    return ()


def _way_to(end: Node, came_from: Mapping[Node, Node | None]) -> tuple[Node, ...]:
    way, node = [end], came_from[end]
    while node is not None:
        way.append(node)
        node = came_from[node]
    return tuple(reversed(way))
