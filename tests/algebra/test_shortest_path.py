"""The shortest path between two nodes of a graph."""

from __future__ import annotations

from millstream.algebra.shortest_path import shortest_path

GRAPH = {"a": "bc", "b": "d", "c": "e", "d": "f", "e": "", "f": "a"}


def path(start: str, end: str) -> str:
    return "".join(shortest_path(start, end.__eq__, lambda node: GRAPH[node]))


def test_both_ends_are_part_of_the_path() -> None:
    assert path("a", "f") == "abdf"
    assert path("a", "a") == "a"


def test_a_node_that_cannot_be_reached_has_no_path() -> None:
    assert path("e", "a") == ""


def test_a_cycle_is_walked_once() -> None:
    assert path("b", "c") == "bdfac"
