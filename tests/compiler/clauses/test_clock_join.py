"""The clock is joined where its time is read: to the rows of FROM, or to the groups."""

from __future__ import annotations

from collections.abc import Callable

from millstream.algebra.relation import Aggregate, Join, Relation, Scan
from millstream.algebra.table import Clock
from millstream.compiler.clauses.clock import COLUMN
from millstream.compiler.clauses.clock_join import join_clock
from millstream.compiler.decorrelate.scope import Scope, ScopedRows
from millstream.testing.planning_server import table

Build = Callable[[str], Relation]


def clocks_below(relation: Relation) -> int:
    return sum(isinstance(node, Scan) and isinstance(node.table, Clock) for node in relation.walk())


def groups_of(relation: Relation) -> Aggregate:
    return next(node for node in relation.walk() if isinstance(node, Aggregate))


def test_a_query_without_the_time_reads_no_clock(build: Build) -> None:
    assert clocks_below(build("SELECT u.a FROM u")) == 0


def test_two_calls_in_one_select_read_one_clock(build: Build) -> None:
    assert (
        clocks_below(build("SELECT now() AS t FROM u WHERE (now() > '2020-01-01'::timestamptz)"))
        == 1
    )


def test_an_aggregate_over_the_time_reads_it_per_row(build: Build) -> None:
    relation = build("SELECT max(now()) AS m FROM u")
    assert clocks_below(groups_of(relation)) == clocks_below(relation) == 1


def test_the_time_beside_an_aggregate_is_read_per_group(build: Build) -> None:
    relation = build("SELECT u.a, now() AS t, count(*) AS n FROM u GROUP BY u.a")
    assert clocks_below(groups_of(relation)) == 0
    assert clocks_below(relation) == 1


def test_a_subquery_has_a_clock_of_its_own(build: Build) -> None:
    relation = build(
        "SELECT now() AS t FROM ( SELECT u.a FROM u WHERE (now() > '2020-01-01'::timestamptz)) q"
    )
    assert clocks_below(relation) == 2


def test_the_scope_resolves_the_time_to_the_joined_clock() -> None:
    rows = ScopedRows(Scan(table("t", "id int4"), "t"), Scope())
    joined = join_clock(rows, lambda wanted: f"{wanted}_7")
    assert isinstance(joined.rows, Join)
    found = joined.scope.find(*COLUMN)
    assert found is not None
    assert found.refs == set(joined.rows.right.columns)
    assert found.aliases == {"clock_7"}


def test_a_keyword_in_from_reads_the_clock(build: Build) -> None:
    """It was taken for a table of that name."""
    relation = build("SELECT u.a, q.d FROM u, CURRENT_DATE q(d)")
    assert clocks_below(relation) == 1
    assert [ref.column for ref in relation.columns] == ["a", "d"]
