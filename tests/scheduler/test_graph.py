"""The graph of stream tables: what reads what, to any depth, and the shortest way round where one
reads itself.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.scheduler.graph import Dependency, Graph

NAMES = {id: f"t{id}" for id in range(6)}
edges = st.lists(
    st.tuples(st.sampled_from(range(6)), st.sampled_from(range(6))), max_size=15, unique=True
)


def graph_of(pairs: list[tuple[int, int]]) -> Graph:
    return Graph(NAMES, tuple(Dependency(reader, upstream) for reader, upstream in pairs))


def closure(pairs: list[tuple[int, int]]) -> set[tuple[int, int]]:
    """Which reads which, directly or not, by joining the pairs with themselves until nothing is
    new.
    """
    found = set(pairs)
    while new := {(a, d) for a, b in found for c, d in pairs if b == c} - found:
        found |= new
    return found


@given(edges)
def test_upstreams_are_all_that_is_read_to_any_depth(pairs: list[tuple[int, int]]) -> None:
    reached = closure(pairs)
    for id in NAMES:
        assert graph_of(pairs).upstreams(id) == {
            upstream for reader, upstream in reached if reader == id
        }


@given(edges)
def test_a_cycle_is_found_exactly_where_a_table_reads_itself_and_leads_back_to_it(
    pairs: list[tuple[int, int]],
) -> None:
    graph, reached = graph_of(pairs), closure(pairs)
    for id in NAMES:
        cycle = graph.cycle(id)
        assert bool(cycle) == ((id, id) in reached)
        if cycle:
            assert (cycle[0].reader, cycle[-1].upstream) == (id, id)
            assert all(one.upstream == other.reader for one, other in pairwise(cycle))
            assert len({read.reader for read in cycle}) == len(cycle)


def test_the_shortest_cycle_is_returned() -> None:
    long_way = [Dependency(0, 1), Dependency(1, 2), Dependency(2, 3), Dependency(3, 0)]
    graph = Graph(NAMES, (*long_way, Dependency(1, 0, ("view public.v",))))
    assert graph.printed(graph.cycle(0)) == "t0 -> t1 -> view public.v -> t0"


def test_a_direct_self_read_is_a_cycle_and_what_only_leads_to_one_is_not() -> None:
    graph = Graph(NAMES, (Dependency(0, 1), Dependency(1, 1)))
    assert graph.cycle(0) == ()
    assert graph.printed(graph.cycle(1)) == "t1 -> t1"


def test_a_graph_prints_one_read_a_line() -> None:
    graph = Graph(NAMES, (Dependency(0, 1, ("view v", "function f()")), Dependency(1, 2)))
    assert str(graph) == "t0 -> view v -> function f() -> t1\nt1 -> t2"


def test_a_read_of_a_table_without_a_name_cannot_be() -> None:
    with pytest.raises(ValueError, match="9"):
        Graph(NAMES, (Dependency(0, 9),))
