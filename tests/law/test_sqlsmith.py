"""The law on queries that SQLsmith wrote, where it is installed.

    MILLSTREAM_TEST_SQLSMITH=5000   queries to write; `make soak` has 1500 written
    MILLSTREAM_TEST_LAW_SEED=7      another seed (or `random`)

A query may be refused for a reason, never for how it is written, and no error may be internal. All
others are kept, the tables change, and after each change every stream table equals its query or,
where PostgreSQL raises an error for the query, raises one too. Errors that PostgreSQL's plan happens
not to come to, as it looks at another condition first, are counted and printed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

import psycopg
import pytest
from tests.law.conftest import Law

from millstream.errors import (
    InternalError,
    MillstreamError,
    NoSuchStreamTable,
    QueryError,
    Volatile,
)
from millstream.testing import sqlsmith

NUMBER = int(os.environ.get("MILLSTREAM_TEST_SQLSMITH", "0"))
_GIVEN = os.environ.get("MILLSTREAM_TEST_LAW_SEED", "1")
SEED = random.SystemRandom().randrange(1_000_000) if _GIVEN == "random" else int(_GIVEN)
TOGETHER = 20

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(NUMBER == 0, reason="takes hours: `make soak` runs it"),
    pytest.mark.skipif(not sqlsmith.installed(), reason="SQLsmith is not installed"),
]


def test_queries_of_sqlsmith_equal_postgres(law: Law) -> None:
    found = Counter[str]()
    wrong = list[str]()
    queries = sqlsmith.queries(law.conn, NUMBER, SEED)
    while some := list(islice(queries, TOGETHER)):
        wrong += Batch(law, some, found).run()
        print_table(found)
    assert not wrong, "\n\n".join(wrong)
    assert found["kept"]


def print_table(found: Counter[str]) -> None:
    print(
        f"MILLSTREAM_TEST_LAW_SEED={SEED}",
        *(f"{n:6}  {what}" for what, n in found.most_common()),
        sep="\n",
    )


class Batch:
    """Some of the queries, kept while the tables change."""

    def __init__(self, law: Law, queries: Sequence[str], found: Counter[str]) -> None:
        self.law = law
        self.queries = {f"s{number}": query for number, query in enumerate(queries)}
        self.found = found

    def run(self) -> Iterator[str]:
        """Yield what is wrong."""
        self.law.conn.execute(sqlsmith.SQL["fill"])
        kept = list[str]()
        for name, query in self.queries.items():
            self.found["PostgreSQL runs"] += 1
            trouble = self._create(name)
            if trouble is None:
                kept.append(name)
            elif self._is_wrong(trouble, query):
                yield f"{trouble!r}\n{query}"
        for change in sqlsmith.CHANGES:
            self.law.change(change)
            for name in list(kept):
                if (trouble := self._refresh(name)) is not None:
                    kept.remove(name)
                    if self._is_wrong(trouble, self.queries[name]):
                        yield f"{trouble!r}\n{self.queries[name]}"
        self.found["kept"] += len(kept)
        for name in self.queries:
            self._drop(name)

    def _create(self, name: str) -> Exception | None:
        try:
            self.law.create(name, self.queries[name])
        except (MillstreamError, AssertionError) as trouble:
            return trouble
        return None

    def _refresh(self, name: str) -> Exception | None:
        try:
            report = self.law.ms.refresh(name)
            assert report.action in ("DIFFERENTIAL", "NO_DATA"), report.action
        except (MillstreamError, AssertionError) as trouble:
            return trouble
        return None

    def _drop(self, name: str) -> None:
        with suppress(NoSuchStreamTable):
            self.law.ms.drop_stream_table(name)

    def _is_wrong(self, trouble: Exception, query: str) -> bool:
        """Whether an error says that something is wrong; others are counted by their reason."""
        if isinstance(trouble, QueryError):
            self.found[f"refused: {reason(trouble)}"] += 1
            return "syntax" in str(trouble)
        if isinstance(trouble, InternalError | AssertionError):
            print(f"{trouble}\n{query}")
            self.found["wrong"] += 1
            return True
        raised = "an error, as in PostgreSQL"
        if self._postgres_runs(query):
            print(f"{trouble}\n{query}")
            raised = "an error that PostgreSQL's plan does not come to"
        self.found[raised] += 1
        return False

    def _postgres_runs(self, query: str) -> bool:
        try:
            self.law.conn.execute(query.encode())
        except psycopg.Error:
            return False
        return True


def reason(trouble: QueryError) -> str:
    """The kind of a refusal, without the names of the query."""
    if isinstance(trouble, Volatile):
        return "MS103 a function that is not immutable"
    return f"{trouble.code} {trouble.detail.partition('. ')[0][:100] or trouble.message}"
