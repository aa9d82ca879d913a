"""Stream tables that a query reads, and by way of which views and functions."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.compiler.server.upstreams import _path
from millstream.postgres.lineage import Lineage, Object

CLASS, PROC = 1259, 1255
QUERY, VIEW, FUNCTION = (CLASS, 1), (CLASS, 2), (PROC, 3)
FIRST, SECOND = (CLASS, 10), (CLASS, 11)


def path(links: Mapping[Object, tuple[Object, ...]], end: Object) -> tuple[Object, ...]:
    return _path(Lineage(QUERY, dict(links)), end, {FIRST, SECOND})


def test_a_stream_table_is_reached_through_views_and_functions() -> None:
    links = {QUERY: (VIEW,), VIEW: (FUNCTION,), FUNCTION: (FIRST,)}
    assert path(links, FIRST) == (QUERY, VIEW, FUNCTION, FIRST)


def test_the_shortest_path_is_returned() -> None:
    links = {QUERY: (VIEW, FIRST), VIEW: (FIRST,)}
    assert path(links, FIRST) == (QUERY, FIRST)


def test_a_stream_table_behind_another_one_is_not_read_by_the_query() -> None:
    links = {QUERY: (FIRST,), FIRST: (SECOND,)}
    assert path(links, FIRST) == (QUERY, FIRST)
    assert path(links, SECOND) == ()


def test_it_is_read_where_one_way_passes_no_other_stream_table() -> None:
    links = {QUERY: (FIRST, VIEW), FIRST: (SECOND,), VIEW: (FUNCTION,), FUNCTION: (SECOND,)}
    assert path(links, SECOND) == (QUERY, VIEW, FUNCTION, SECOND)
