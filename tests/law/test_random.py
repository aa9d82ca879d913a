"""The law on random data: random tables, random queries, random changes of all inputs at once.

    MILLSTREAM_TEST_LAW_SEED=7      another seed (or `random`); every failure prints the one it ran with
    MILLSTREAM_TEST_LAW_ROUNDS=20   more rounds; a round is a schema, some queries over it and some batches of changes

One round of cased tables holds a hundred small databases side by side, told apart by `cid`; a
refresh tries one query on all of them. A case is one query on one of those databases that a batch
of changes has touched. `make soak` tries 20,000 of them.

Besides the law itself, what follows from it: one large batch is many small ones, an UPDATE is a
DELETE and an INSERT, columns that nobody reads and the order of FROM change nothing, a second
refresh has nothing to do.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import Unsupported
from millstream.refresh.cut import Cut
from millstream.refresh.job import Job
from millstream.refresh.reads import access_paths, semijoin
from millstream.refresh.report import RefreshReport
from millstream.spark import engine, parts
from millstream.spark.engine import Engine
from millstream.testing import oracle
from millstream.testing.queries import Query, RandomQueries
from millstream.testing.randomness import RandomChanges, RandomTable, random_tables

if TYPE_CHECKING:
    from tests.law.conftest import Law

pytestmark = pytest.mark.spark

_GIVEN = os.environ.get("MILLSTREAM_TEST_LAW_SEED", "1")
SEED = random.SystemRandom().randrange(1_000_000) if _GIVEN == "random" else int(_GIVEN)
ROUNDS = int(os.environ.get("MILLSTREAM_TEST_LAW_ROUNDS", "1"))
CASES, ROWS_PER_CASE, QUERIES, BATCHES = 150, 4, 5, 2
# A soak is long enough for every construct to be met; a run of the suite is not.
SOAK = 20

# Ways of reading that small tables do not take by themselves: (rows of a lookup, pages the driver
# reads, inline keys).
PATHS = {
    "lookups": (200_000, 1000, 5000),
    "keys in a table": (200_000, 1000, 0),
    "no lookups": (0, 1000, 5000),
    "some lookups": (150, 1000, 5000),
    "scans": (0, -1, 5000),
}

tried: Counter[str] = Counter()
accepted: Counter[str] = Counter()
refused: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def few_rows_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that meet none are left out, however few."""
    monkeypatch.setattr(semijoin, "FEW", 0)


@pytest.fixture(autouse=True)
def seed_in_report(request: pytest.FixtureRequest) -> None:
    print(f"MILLSTREAM_TEST_LAW_SEED={SEED} {request.node.name}")


def take_path(law: Law, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make refreshes read in a certain way."""
    lookup, pages, keys = PATHS[name]
    monkeypatch.setattr(access_paths, "SMALL_PAGES", pages)
    monkeypatch.setattr(access_paths, "INLINE_KEYS", keys)
    law.ms.app.settings = law.ms.app.settings.model_copy(update={"max_lookup_rows": lookup})


def kept(law: Law, queries: RandomQueries, number: int) -> dict[str, Query]:
    """Stream tables over random queries; those that are refused are counted."""
    made = dict[str, Query]()
    while len(made) < number:
        query, name = queries.next(), f"s{len(made) + 1}"
        if created(law, name, query):
            made[name] = query
    return made


def created(law: Law, name: str, query: Query) -> bool:
    """Create a stream table; False where it is refused, aloud."""
    for statement in query.setup:
        law.conn.execute(statement.encode())
    try:
        law.create(name, query.sql)
    except Unsupported:
        refused.update(["queries", *query.parts])
        return False
    except BaseException:
        print(f"in {query.setup} {query.sql}")
        raise
    accepted.update(["queries", *query.parts])
    return True


def count(touched: set[int], reports: list[RefreshReport]) -> None:
    tried["cases"] += len(touched) * len(reports)
    tried["refreshes"] += len(reports)
    tried["rows read"] += sum(report.rows_read for report in reports)
    tried["rows changed"] += sum(r.rows_inserted + r.rows_updated + r.rows_deleted for r in reports)
    tried.update(f"path {one.path}" for report in reports for one in report.inputs)


def noting(method: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """The same method, whose calls are counted; it takes and gives what it did."""

    def noted(*given: Any) -> Any:
        calls.append(method.__name__)
        return method(*given)

    return noted


def settled(law: Law, names: list[str]) -> None:
    """A second refresh does nothing and reads nothing; recomputing everything corrects nothing."""
    for report in law.refresh(*names, action="NO_DATA"):
        assert (report.rows_read, report.spark_jobs) == (0, 0)
    for name in names[::2]:
        full = law.ms.refresh(name, full=True)
        assert full.action == "FULL"
        assert (full.rows_inserted, full.rows_updated, full.rows_deleted) == (0, 0, 0), name


def filled(law: Law, dice: random.Random, *, cased: bool = True) -> RandomChanges:
    """Random tables with rows in them."""
    changes = RandomChanges(
        law.conn, random_tables(dice, cased=cased), dice, cases=CASES if cased else 1
    )
    changes.create()
    changes.fill(ROWS_PER_CASE if cased else 9)
    return changes


@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_queries_over_many_cases_equal_postgres(
    number: int, law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"{SEED} cased {number}")
    changes = filled(law, dice)
    queries = kept(law, RandomQueries(changes.tables, dice), QUERIES)
    for batch in range(BATCHES):
        take_path(
            law,
            dice.choice(["lookups", "keys in a table", "no lookups", "some lookups"]),
            monkeypatch,
        )
        touched = changes.batch()
        print(f"batch {batch}: {', '.join(changes.log)}")
        count(touched, law.refresh_all() if batch else law.refresh(*queries))
        changes.log.clear()
    settled(law, list(queries))
    tried["rounds"] += 1


@pytest.mark.parametrize("number", range(max(1, ROUNDS // 2)))
def test_random_queries_that_ask_the_time_equal_postgres(
    number: int, law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"{SEED} clock {number}")
    changes = filled(law, dice)
    kept(law, RandomQueries(changes.tables, dice, clock=True), QUERIES)
    for batch in range(2 * BATCHES):
        take_path(law, dice.choice(list(PATHS)), monkeypatch)
        # Every other time nothing but the time has changed.
        touched = changes.batch() if batch % 2 else set()
        print(f"batch {batch}: {', '.join(changes.log)}")
        reports = law.ms.refresh_all()
        assert {report.action for report in reports} <= {"DIFFERENTIAL", "NO_DATA"}
        count(touched, reports)
        changes.log.clear()


@pytest.mark.parametrize("number", range(max(1, ROUNDS // 2)))
def test_random_queries_over_random_queries_equal_postgres(
    number: int, law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stream tables over stream tables, and over tables beside them: all move in one cut."""
    dice = random.Random(f"{SEED} graph {number}")
    changes = filled(law, dice)
    lower = list[RandomTable]()
    for level in range(2):
        queries = RandomQueries([*changes.tables[:2], *lower, *lower], dice, prefix=f"l{level}")
        lower += [layer(law, queries, f"s_{level}_{n}") for n in range(2)]
    kept(law, RandomQueries([*changes.tables[:1], *lower], dice), QUERIES - 2)
    for batch in range(BATCHES):
        take_path(
            law,
            dice.choice(["lookups", "keys in a table", "no lookups", "some lookups"]),
            monkeypatch,
        )
        touched = changes.batch()
        print(f"batch {batch}: {', '.join(changes.log)}")
        reports = law.ms.refresh_all()
        assert {report.action for report in reports} <= {"DIFFERENTIAL", "NO_DATA"}
        count(touched, reports)
        changes.log.clear()


@pytest.mark.parametrize("number", range(max(1, ROUNDS // 2)))
def test_random_null_extended_sides_equal_postgres(number: int, law: Law) -> None:
    """Every query has a constant on the null-extended side of an outer join, in any form: there it
    may be NULL.
    """
    dice = random.Random(f"{SEED} null-extended {number}")
    changes = filled(law, dice)
    queries = RandomQueries(changes.tables, dice)
    names = [name for n in range(8) if created(law, name := f"s{n}", queries.null_extended())]
    count(changes.batch(), law.refresh(*names))


@pytest.mark.parametrize("number", range(max(1, ROUNDS // 2)))
def test_nothing_is_raised_for_random_rows_that_limit_or_a_filter_leaves_out(
    number: int, law: Law
) -> None:
    dice = random.Random(f"{SEED} left out {number}")
    changes = filled(law, dice)
    changes.strays()
    queries = RandomQueries(changes.tables, dice)
    assert sum(created(law, f"s{n}", queries.leaving_out()) for n in range(7)) >= 6
    for change in (changes.strays, changes.batch):
        changes.touched.clear()
        change()
        reports = law.ms.refresh_all()
        assert {report.action for report in reports} <= {"DIFFERENTIAL", "NO_DATA"}
        count(changes.touched, reports)


@pytest.mark.parametrize("number", range(max(1, ROUNDS // 2)))
def test_random_arithmetic_across_tables_equals_postgres(number: int, law: Law) -> None:
    """The numbers come to be NaN, infinite, huge and tiny, and go away again."""
    dice = random.Random(f"{SEED} numbers {number}")
    changes = filled(law, dice)
    queries = RandomQueries(changes.tables, dice)
    assert sum(created(law, f"s{n}", queries.numbered()) for n in range(8)) >= 6
    for change in (changes.extremes, changes.batch):
        changes.touched.clear()
        change()
        reports = law.ms.refresh_all()
        assert {report.action for report in reports} <= {"DIFFERENTIAL", "NO_DATA"}
        count(changes.touched, reports)


@pytest.mark.parametrize("number", range(max(1, ROUNDS // 2)))
def test_random_joins_by_conditions_of_postgresql_equal_postgres(number: int, law: Law) -> None:
    dice = random.Random(f"{SEED} pairs {number}")
    changes = filled(law, dice)
    queries = RandomQueries(changes.tables, dice)
    assert sum(created(law, f"s{n}", queries.paired()) for n in range(8)) >= 6
    for _ in range(2):
        touched = changes.batch()
        reports = law.ms.refresh_all()
        assert {report.action for report in reports} <= {"DIFFERENTIAL", "NO_DATA"}
        count(touched, reports)
        changes.log.clear()


@pytest.mark.parametrize("number", range(max(1, ROUNDS // 2)))
def test_nothing_is_raised_for_random_rows_that_a_join_discards(number: int, law: Law) -> None:
    """Every table has rows that no other table joins, and for which the expressions of the queries
    raise errors.
    """
    law.ms.app.witness = joining_by_hash(law)
    dice = random.Random(f"{SEED} discarded {number}")
    changes = filled(law, dice)
    changes.strays()
    queries = RandomQueries(changes.tables, dice)
    names = [name for n in range(10) if created(law, name := f"s{n}", queries.discarding())]
    changes.strays()
    count(changes.batch(), law.refresh(*names))


def joining_by_hash(law: Law) -> Callable[[Cut, Job, RefreshReport], None]:
    """The witness; in nested loops PostgreSQL itself may compute for rows that a join discards, as
    keys of a cache.
    """

    def witness(now: Cut, job: Job, report: RefreshReport) -> None:
        now.conn.execute("SET LOCAL enable_nestloop = off")
        law._witness(now, job, report)

    return witness


def layer(law: Law, queries: RandomQueries, name: str) -> RandomTable:
    """A stream table that others read."""
    while True:
        query, table = queries.lower(name)
        if created(law, name, query):
            return table


@pytest.mark.parametrize("number", range(max(1, ROUNDS // 2)))
def test_random_queries_without_cases_equal_postgres(
    number: int, law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small tables that are one database: here whole tables become empty, and fill again."""
    dice = random.Random(f"{SEED} plain {number}")
    changes = filled(law, dice, cased=False)
    queries = kept(law, RandomQueries(changes.tables, dice), QUERIES)
    for batch in range(BATCHES):
        take_path(law, dice.choice(["lookups", "keys in a table", "no lookups"]), monkeypatch)
        touched = changes.batch()
        if batch == 0:
            law.change(
                *(f"DELETE FROM {table.name}" for table in dice.sample(list(changes.tables), 2))
            )
        count(touched, law.refresh(*queries))
    settled(law, list(queries))


# -- what follows from the law ---------------------------------------------------------------


def test_one_large_batch_equals_many_small_ones(law: Law) -> None:
    dice = random.Random(f"{SEED} batches")
    changes = filled(law, dice)
    queries = kept(law, RandomQueries(changes.tables, dice), 2)
    for name, query in queries.items():
        law.create(f"{name}_late", query.sql)
    for _ in range(3):
        count(changes.batch(), law.refresh(*queries))
    law.refresh(*(f"{name}_late" for name in queries))
    for name in queries:
        assert not oracle.same_bag(law.conn, name, f"{name}_late")


def test_an_update_equals_a_delete_and_an_insert(law: Law) -> None:
    """Each table has a twin that follows it by DELETE and INSERT alone."""
    dice = random.Random(f"{SEED} twins")
    changes = filled(law, dice)
    twins = {table.name: f"twin_{table.name}" for table in changes.tables}
    for table, twin in twins.items():
        law.change(f"CREATE TABLE {twin} (LIKE {table} INCLUDING INDEXES)", *followed(table, twin))
    queries = kept(law, RandomQueries(changes.tables, dice), 2)
    for name, query in queries.items():
        assert created(law, f"twin_{name}", twinned(query))
    count(changes.batch(), law.refresh(*queries))
    law.change(*(statement for table, twin in twins.items() for statement in followed(table, twin)))
    law.refresh(*(f"twin_{name}" for name in queries))
    for name in queries:
        assert not oracle.same_bag(law.conn, name, f"twin_{name}")


def twinned(query: Query) -> Query:
    """The same query over the twins, and over views of its own."""
    setup, sql = (
        [_TABLE.sub(r"twin_\g<0>", text) for text in query.setup],
        _TABLE.sub(r"twin_\g<0>", query.sql),
    )
    return Query(sql, tuple(setup), query.parts)


_TABLE = re.compile(r"\b(t[0-9]+|q[0-9]+_view_[0-9]+)\b")


def followed(table: str, twin: str) -> tuple[str, str]:
    """Make the twin's rows those of the table; equal rows are told apart by a number."""
    one, other = (
        f"(SELECT t.ctid AS at, t::text AS row, row_number() OVER (PARTITION BY t::text) AS n FROM {name} AS t)"
        for name in (twin, table)
    )
    gone = f"SELECT a.at FROM {one} AS a LEFT JOIN {other} AS b USING (row, n) WHERE b.at IS NULL"
    new = f"SELECT b.at FROM {other} AS b LEFT JOIN {one} AS a USING (row, n) WHERE a.at IS NULL"
    return (
        f"DELETE FROM {twin} WHERE ctid IN ({gone})",
        f"INSERT INTO {twin} SELECT * FROM {table} WHERE ctid IN ({new})",
    )


def test_columns_that_nobody_reads_change_nothing(law: Law) -> None:
    dice = random.Random(f"{SEED} unread")
    changes = filled(law, dice)
    for table in changes.tables:
        law.change(f"ALTER TABLE {table.name} ADD COLUMN spare int")
    queries = kept(law, RandomQueries(changes.tables, dice), 3)
    law.change(*(f"UPDATE {table.name} SET spare = 1" for table in changes.tables))
    for name in queries:
        report = law.ms.refresh(name)
        assert report.action in ("DIFFERENTIAL", "NO_DATA")
        assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)
        assert {one.path for one in report.inputs} <= {"changes"}, "what cancels leads nowhere"


def test_the_order_of_from_changes_nothing(law: Law) -> None:
    dice = random.Random(f"{SEED} order")
    changes = filled(law, dice)
    queries, pairs = RandomQueries(changes.tables, dice), list[tuple[str, str]]()
    while len(pairs) < 2:
        one, other = queries.reordered()
        names = f"s{len(pairs)}", f"s{len(pairs)}_turned"
        if created(law, names[0], one):
            law.create(names[1], other.sql)
            pairs.append(names)
    touched = changes.batch()
    for one_name, other_name in pairs:
        count(touched, law.refresh(one_name, other_name))
        assert not oracle.same_bag(law.conn, one_name, other_name)


def test_scans_by_spark_tasks_give_the_same(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(f"{SEED} scans")
    changes = filled(law, dice)
    take_path(law, "scans", monkeypatch)
    queries = kept(law, RandomQueries(changes.tables, dice), 2)
    count(changes.batch(), law.refresh(*queries))
    assert tried["path scan"]


def test_rows_that_come_and_go_in_parts_give_the_same(
    law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where tables, and what is stored of a query's parts, are larger than the memory of Spark's
    driver.
    """
    dice = random.Random(f"{SEED} parts")
    changes = filled(law, dice)
    take_path(law, "no lookups", monkeypatch)
    monkeypatch.setattr(parts, "PART_BYTES", 5_000)
    monkeypatch.setattr(engine, "_SMALL", 100)
    stored = list[str]()
    monkeypatch.setattr(Engine, "store", noting(Engine.store, stored))
    queries = kept(law, RandomQueries(changes.tables, dice), 3)
    count(changes.batch(), law.refresh(*queries))
    assert stored


def test_thousands_of_cases_were_tried(capsys: pytest.CaptureFixture[str]) -> None:
    """Runs last; a part of the suite run on its own proves less and says so."""
    if ROUNDS < 2 or tried["rounds"] < ROUNDS:
        pytest.skip("a part of the law only")
    share = refused["queries"] / (accepted["queries"] + refused["queries"])
    with capsys.disabled():
        print(f"\nlaw, seed {SEED}: {dict(tried.most_common())}")
        print(f"accepted {dict(accepted.most_common())}")
        print(f"refused {share:.1%}: {dict(refused.most_common(12))}")
    assert tried["cases"] >= (20_000 if ROUNDS >= SOAK else 2_000)
    # Of few queries some more may be refused by chance.
    assert share < (0.15 if ROUNDS >= SOAK else 0.3), "too many of the queries are refused"
    if ROUNDS >= SOAK:
        assert set(refused) - set(accepted) == set(), "constructs that are never accepted"
