"""Random queries over random tables: the SQL that stream tables accept today, nested at random.

    selects      plain, grouped, DISTINCT, UNION, INTERSECT, EXCEPT
    joins        FROM clauses: inner, cross, theta, LEFT, RIGHT, FULL, USING, parentheses
    derived      items of FROM that are queries: filtered, grouped, windowed, limited, combined; views, CTEs used twice
    functions    functions in FROM and in the select list, over the columns of an item
    recursions   WITH RECURSIVE, by UNION and by UNION ALL, SEARCH and CYCLE
    laterals     LATERAL items: rows, first rows, groups, aggregates, set operations for each row before them
    subqueries   EXISTS, IN, ANY, ALL, scalar, by a unique key; in WHERE, HAVING and the select list; tied by equality
                 or by anything, to the query around or to one further out
    hiding       constants, and expressions that are not NULL of NULLs: in the select list of every derived table
    discarded    expressions that raise errors for rows that a join discards
    left_out     the same for rows that LIMIT or a filter further out leaves out
    numbers      arithmetic of numerics across tables
    opaque       joins by conditions that only PostgreSQL can evaluate
    groups       keys, measures, FILTER, HAVING
    conditions   over one item, and ties between two; by the time, where that is asked for
    expressions  over one item, and over two

A query over a cased schema joins and groups by `cid` nearly everywhere, and shows it. A generator
asks the dice only, so a seed gives the same queries for ever. What PostgreSQL would refuse is not
generated; what Millstream refuses may be, seldom.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.testing.queries import derived, discarded, left_out, numbers, opaque, selects
from millstream.testing.queries.maker import Maker
from millstream.testing.queries.terms import Query
from millstream.testing.randomness import KINDS, RandomColumn, RandomTable

__all__ = ["Queries", "Query"]


@dataclass
class RandomQueries:
    """A generator of queries over some tables."""

    tables: Sequence[RandomTable]
    dice: random.Random
    prefix: str = ""
    """Put before the names of views, so that generators do not meet."""
    made: int = 0
    clock: bool = False
    """Do they ask what time it is? Then no two refreshes see the same."""

    def next(self) -> Query:
        """Return another query."""
        maker = self._maker(self.dice.randint(1, 3))
        return _finished(maker, selects.query(maker))

    def null_extended(self) -> Query:
        """Return a query with a constant on the null-extended side of an outer join."""
        maker = self._maker(self.dice.randint(1, 2))
        return _finished(maker, selects.null_extended(maker))

    def discarding(self) -> Query:
        """Return a query over a cased schema that raises errors for strays if they are not
        discarded first.
        """
        maker = self._maker(1)
        return _finished(maker, discarded.discarding(maker))

    def leaving_out(self) -> Query:
        """Return a query over a cased schema whose LIMIT or filter leaves out the strays that it
        would fail for.
        """
        maker = self._maker(1)
        return _finished(maker, left_out.leaving_out(maker))

    def numbered(self) -> Query:
        """Return a query over a cased schema with arithmetic of numerics across tables."""
        maker = self._maker(1)
        return _finished(maker, numbers.numbered(maker))

    def paired(self) -> Query:
        """Return a query over a cased schema that joins by a condition that only PostgreSQL can
        evaluate.
        """
        maker = self._maker(1)
        return _finished(maker, opaque.paired(maker))

    def reordered(self) -> tuple[Query, Query]:
        """Return a query, and the same with the items of FROM in another order."""
        maker = self._maker(2)
        one, other = selects.reordered(maker)
        return _finished(maker, one), _finished(maker, other)

    def lower(self, name: str) -> tuple[Query, RandomTable]:
        """Return a query that others can be over, and its stream table under that name as they see
        it.
        """
        maker = self._maker(self.dice.randint(1, 2))
        text, columns = derived.whole(maker)
        seen = tuple(RandomColumn(column, KINDS[kind]) for column, kind in columns)
        return Query(text, tuple(maker.setup), frozenset(maker.parts)), RandomTable(name, seen)

    def _maker(self, depth: int) -> Maker:
        self.made += 1
        return Maker(
            self.tables,
            self.dice,
            derived.item,
            f"{self.prefix}q{self.made}_",
            depth,
            clock=self.clock,
        )


def _finished(maker: Maker, body: str) -> Query:
    return Query(maker.whole(body), tuple(maker.setup), frozenset(maker.parts))
