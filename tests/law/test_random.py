"""The law on random data: random tables, random queries, random changes of all inputs at once.

    MILLSTREAM_TEST_LAW_SEED=7      another seed (or `random`); every failure prints the one it ran with
    MILLSTREAM_TEST_LAW_ROUNDS=40   more rounds; a round is a schema, some queries over it and some batches of changes

One round of cased tables holds a hundred small databases side by side, told apart by `cid`; a refresh tries one query
on all of them. A case is one query on one of those databases that a batch of changes has touched.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from millstream.errors import Unsupported
from millstream.refresh import access
from millstream.refresh.report import RefreshReport
from millstream.testing import oracle
from millstream.testing.queries import Queries, Query
from millstream.testing.randomness import Changes, random_tables

if TYPE_CHECKING:
    from tests.law.conftest import Law

pytestmark = pytest.mark.spark

_GIVEN = os.environ.get("MILLSTREAM_TEST_LAW_SEED", "1")
SEED = random.SystemRandom().randrange(1_000_000) if _GIVEN == "random" else int(_GIVEN)
ROUNDS = int(os.environ.get("MILLSTREAM_TEST_LAW_ROUNDS", "4"))
CASES, ROWS_PER_CASE, QUERIES, BATCHES = 150, 4, 8, 2

# Ways of reading that small tables do not take by themselves: (rows of a lookup, pages the driver reads, inline keys).
PATHS = {
    "lookups": (200_000, 1000, 5000),
    "keys in a table": (200_000, 1000, 0),
    "no lookups": (0, 1000, 5000),
    "some lookups": (150, 1000, 5000),
    "scans": (0, -1, 5000),
}

tried: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def seed_in_report(request: pytest.FixtureRequest) -> None:
    print(f"MILLSTREAM_TEST_LAW_SEED={SEED} {request.node.name}")


def take_path(law: Law, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make refreshes read in a certain way."""
    lookup, pages, keys = PATHS[name]
    monkeypatch.setattr(access, "SMALL_PAGES", pages)
    monkeypatch.setattr(access, "INLINE_KEYS", keys)
    law.ms.app.settings = law.ms.app.settings.model_copy(update={"max_lookup_rows": lookup})


def kept(law: Law, queries: Queries, number: int) -> dict[str, Query]:
    """Stream tables over random queries; those that are refused are counted."""
    made = dict[str, Query]()
    while len(made) < number:
        query, name = queries.next(), f"s{len(made) + 1}"
        for statement in query.setup:
            law.conn.execute(statement.encode())
        try:
            law.create(name, query.sql)
            made[name] = query
        except Unsupported:
            tried["refused"] += 1
        except BaseException:
            print(f"in {query.setup} {query.sql}")
            raise
    return made


def count(touched: set[int], reports: list[RefreshReport], queries: dict[str, Query]) -> None:
    tried["cases"] += len(touched) * len(reports)
    tried["refreshes"] += len(reports)
    tried["rows read"] += sum(report.rows_read for report in reports)
    tried["rows changed"] += sum(r.rows_inserted + r.rows_updated + r.rows_deleted for r in reports)
    tried.update(f"path {one.path}" for report in reports for one in report.inputs)
    tried.update(part for query in queries.values() for part in query.parts)


def settled(law: Law, names: list[str]) -> None:
    """A second refresh does nothing and reads nothing; recomputing everything corrects nothing."""
    for report in law.refresh(*names, action="NO_DATA"):
        assert (report.rows_read, report.spark_jobs) == (0, 0)
    for name in names[::2]:
        full = law.ms.refresh(name, full=True)
        assert full.action == "FULL"
        assert (full.rows_inserted, full.rows_updated, full.rows_deleted) == (0, 0, 0), name


@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_queries_over_many_cases_equal_postgres(number: int, law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(f"{SEED} cased {number}")
    tables = random_tables(dice, cased=True)
    changes = Changes(law.conn, tables, dice, cases=CASES)
    changes.create()
    changes.fill(ROWS_PER_CASE)
    queries = kept(law, Queries(tables, dice), QUERIES)
    for batch in range(BATCHES):
        take_path(law, dice.choice(["lookups", "keys in a table", "no lookups", "some lookups"]), monkeypatch)
        touched = changes.batch()
        print(f"batch {batch}: {', '.join(changes.log)}")
        count(touched, law.refresh_all() if batch else law.refresh(*queries), queries)
        changes.log.clear()
    settled(law, list(queries))
    tried["rounds"] += 1


@pytest.mark.parametrize("number", range(max(1, ROUNDS // 2)))
def test_random_queries_without_cases_equal_postgres(number: int, law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(f"{SEED} plain {number}")
    tables = random_tables(dice, cased=False)
    changes = Changes(law.conn, tables, dice)
    changes.create()
    changes.fill(9)
    queries = kept(law, Queries(tables, dice), QUERIES)
    for _ in range(BATCHES):
        take_path(law, dice.choice(["lookups", "keys in a table", "no lookups"]), monkeypatch)
        touched = changes.batch()
        count(touched, law.refresh(*queries), queries)
    settled(law, list(queries))


def test_one_large_batch_equals_many_small_ones(law: Law) -> None:
    dice = random.Random(f"{SEED} batches")
    tables = random_tables(dice, cased=True)
    changes = Changes(law.conn, tables, dice, cases=CASES)
    changes.create()
    changes.fill(ROWS_PER_CASE)
    queries = kept(law, Queries(tables, dice), 4)
    for name, query in queries.items():
        law.create(f"{name}_late", query.sql)
    for _ in range(4):
        count(changes.batch(), law.refresh(*queries), queries)
    law.refresh(*(f"{name}_late" for name in queries))
    for name in queries:
        assert not oracle.same_bag(law.conn, name, f"{name}_late")


def test_scans_by_spark_tasks_give_the_same(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(f"{SEED} scans")
    tables = random_tables(dice, cased=True)
    changes = Changes(law.conn, tables, dice, cases=CASES)
    changes.create()
    changes.fill(ROWS_PER_CASE)
    take_path(law, "scans", monkeypatch)
    queries = kept(law, Queries(tables, dice), 3)
    count(changes.batch(), law.refresh(*queries), queries)
    assert tried["path scan"]


def test_thousands_of_cases_were_tried(capsys: pytest.CaptureFixture[str]) -> None:
    """Runs last; a part of the suite run on its own proves less and says so."""
    if ROUNDS < 4 or tried["rounds"] < ROUNDS:
        pytest.skip("a part of the law only")
    with capsys.disabled():
        print(f"\nlaw, seed {SEED}: {dict(tried.most_common())}")
    assert tried["cases"] >= 2_000
    assert tried["refused"] < tried["refreshes"] / BATCHES / 5, "too many of the queries are refused"
