"""Queries over three tables become relations without a server: every output column is an integer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from millstream.algebra.dialect import parsed
from millstream.algebra.relation import Relation
from millstream.algebra.table import Table
from millstream.algebra.types import PgType
from millstream.compiler.clauses.build import build_relation
from millstream.testing.planning_server import pg_type, table

TABLES = {
    "t": table("t", "id int4, a int4, b int4", key="id"),
    "u": table("u", "a int4, b int4"),
    "w": table("w", "a int4, b int4"),
}


class Integers:
    """A `CatalogLookup` in which every column is an integer."""

    def table(self, schema: str, name: str) -> Table | str:
        return TABLES[name]

    def types(self, select: str) -> tuple[PgType, ...]:
        return tuple(pg_type("int4") for _ in parsed(select).expressions)

    def aggregates(self) -> frozenset[str]:
        return frozenset()

    def sets(self) -> Mapping[str, bool]:
        return {}


@pytest.fixture
def build() -> Callable[[str], Relation]:
    """Return a function that builds the relation of a canonical query text."""
    return lambda text: build_relation(text, Integers())
