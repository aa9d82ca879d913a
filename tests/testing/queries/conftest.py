"""Makers of random queries, one for each seed: what a generator promises must hold for all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from sqlglot import exp

from millstream.algebra.dialect import parsed
from millstream.testing.queries.derived import item
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import FromSource
from millstream.testing.randomness import random_tables

SEEDS = range(60)


def makers(*, cased: bool | None = None, clock: bool = False, depth: int = 1) -> Iterator[Maker]:
    """Yield a maker for each seed; every second one has tables with cases, or all of them, or none."""
    for seed in SEEDS:
        dice = random.Random(seed)
        with_cases = seed % 2 == 0 if cased is None else cased
        yield Maker(
            random_tables(dice, cased=with_cases), dice, item, f"q{seed}_", depth, clock=clock
        )


def expression(text: str) -> exp.Expr:
    """Return the syntax tree of an expression."""
    node = parsed(f"SELECT {text}").expressions[0]
    assert isinstance(node, exp.Expr)
    return node


def aliases_of(text: str) -> set[str]:
    """Return the aliases of the columns of an expression, without those of its subqueries' own
    tables.
    """
    tree = expression(text)
    own = {table.alias_or_name for table in tree.find_all(exp.Table, exp.Subquery)}
    return {column.table for column in tree.find_all(exp.Column)} - own


def output_names(text: str) -> list[str]:
    """Return the names of a query's columns."""
    query = parsed(text)
    assert isinstance(query, exp.Query)
    return list(query.named_selects)


def source_of(m: Maker, number: int = 2) -> FromSource:
    """Return a FROM clause of tables side by side."""
    tables = tuple(m.table() for _ in range(number))
    return FromSource(", ".join(table.sql for table in tables), tables)
