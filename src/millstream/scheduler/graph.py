"""The graph of stream tables: which one reads which, directly or through views and functions.

    public.a -> view public.v -> public.b        a reads b, through a view

A stream table must not read itself, even indirectly: its rows would depend on its earlier rows, and
grow with every refresh. So a cycle is refused, with an error that names each of its links:

>>> names = {1: "a", 2: "b", 3: "c"}
>>> links = (Dependency(1, 2, ("view v",)), Dependency(2, 3), Dependency(3, 1))
>>> graph = Graph(names, links)
>>> graph.printed(graph.cycle(1))
'a -> view v -> b -> c -> a'
>>> acyclic = graph.reading(3, ())
>>> acyclic.cycle(1)
()
>>> sorted(acyclic.upstreams(1))
[2, 3]
>>> [sorted(together) for together in acyclic.components()]
[[1, 2, 3]]
>>> print(acyclic)
a -> view v -> b
b -> c
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from millstream.algebra.shortest_path import shortest_path


@dataclass(frozen=True)
class Dependency:
    """One stream table reads another; `via` names the views and functions in between, in order."""

    reader: int
    upstream: int
    via: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """Stream tables by id, with their names, and the reads between them."""

    names: Mapping[int, str]
    reads: tuple[Dependency, ...]

    def __post_init__(self) -> None:
        unnamed = {
            id for read in self.reads for id in (read.reader, read.upstream)
        } - self.names.keys()
        if unnamed:
            raise ValueError(f"stream tables without a name: {sorted(unnamed)}")

    def reading(self, reader: int, reads: Iterable[Dependency]) -> Graph:
        """Return the graph in which `reader` reads these stream tables instead of its former ones."""
        return replace(
            self, reads=(*(read for read in self.reads if read.reader != reader), *reads)
        )

    def direct_upstreams(self, reader: int) -> frozenset[int]:
        """Return the stream tables that `reader` reads itself."""
        return frozenset(read.upstream for read in self._reads_of(reader))

    def components(self) -> list[frozenset[int]]:
        """Return the connected components of the graph, in the order of names."""
        neighbours: dict[int, set[int]] = {id: set() for id in self.names}
        for read in self.reads:
            neighbours[read.reader].add(read.upstream)
            neighbours[read.upstream].add(read.reader)
        found, seen = list[frozenset[int]](), set[int]()
        for id in self.names:
            if id not in seen:
                together = _reachable(id, neighbours)
                seen |= together
                found.append(together)
        return found

    def upstreams(self, reader: int) -> frozenset[int]:
        """Return the stream tables that `reader` reads, directly or through others."""
        found, waiting = set[int](), [reader]
        while waiting:
            new = {read.upstream for read in self._reads_of(waiting.pop())} - found
            found |= new
            waiting += new
        return frozenset(found)

    def cycle(self, start: int) -> tuple[Dependency, ...]:
        """Return the shortest path from a stream table back to itself; empty if there is none."""
        ways = [(read, *self._way(read.upstream, start)) for read in self._reads_of(start)]
        return min((way for way in ways if way[-1].upstream == start), key=len, default=())

    def _way(self, start: int, end: int) -> tuple[Dependency, ...]:
        """Return the path from one stream table to another; empty if there is none."""
        links = shortest_path(
            start, lambda id: id == end, lambda id: [read.upstream for read in self._reads_of(id)]
        )
        return tuple(self._read(reader, upstream) for reader, upstream in pairwise(links))

    def _reads_of(self, reader: int) -> Sequence[Dependency]:
        return self._by_reader.get(reader, ())

    @cached_property
    def _by_reader(self) -> dict[int, list[Dependency]]:
        found = dict[int, list[Dependency]]()
        for read in self.reads:
            found.setdefault(read.reader, []).append(read)
        return found

    def _read(self, reader: int, upstream: int) -> Dependency:
        return next(read for read in self._reads_of(reader) if read.upstream == upstream)

    def printed(self, way: Sequence[Dependency]) -> str:
        """Print a path as one line."""
        parts = [self.names[way[0].reader]] if way else []
        for read in way:
            parts += [*read.via, self.names[read.upstream]]
        return " -> ".join(parts)

    def __str__(self) -> str:
        return "\n".join(self.printed([read]) for read in self.reads)


def _reachable(start: int, neighbours: Mapping[int, set[int]]) -> frozenset[int]:
    found, waiting = {start}, [start]
    while waiting:
        new = neighbours[waiting.pop()] - found
        found |= new
        waiting += new
    return frozenset(found)
