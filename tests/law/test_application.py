"""Two hundred queries of an application and its analysts, kept while all tables change.

The suite keeps those of docs/reference/tasks.md; `make soak` keeps all
(MILLSTREAM_TEST_APPLICATION=all).
"""

from __future__ import annotations

import os

import pytest
from docs.tasks import TASKS
from tests.law.conftest import Law

from millstream.testing.application import CHANGES, QUERIES, SCHEMA

pytestmark = pytest.mark.spark

ALL = os.environ.get("MILLSTREAM_TEST_APPLICATION") == "all"
TOGETHER = 20

# Not kept yet. A query leaves this list in the commit that has it kept.
REFUSED = frozenset(
    [
        "users_by_email_ignoring_case",
        "similar_names",
        "subscriptions_active_per_day",
        "limit_by_subquery",
        "only_one_table",
        "constant_table",
    ]
)


@pytest.fixture
def application(law: Law) -> Law:
    """The law over the application's tables, with rows in them."""
    for statement in SCHEMA:
        law.conn.execute(statement)
    return law


def kept() -> list[str]:
    on_the_page = [name for task in TASKS for name in task.queries]
    return [name for name in (QUERIES if ALL else on_the_page) if name not in REFUSED]


@pytest.mark.parametrize("first", range(0, len(kept()), TOGETHER))
def test_queries_of_an_application_equal_postgres(application: Law, first: int) -> None:
    names = kept()[first : first + TOGETHER]
    application.holds_for({name: QUERIES[name] for name in names}, CHANGES)


def test_the_other_queries_are_refused(application: Law) -> None:
    """Otherwise the list of refused queries is out of date."""
    ms = application.ms
    assert [name for name in sorted(REFUSED) if ms.validate(QUERIES[name]).refusal is None] == []
