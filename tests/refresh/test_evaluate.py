"""Evaluating a block: when Spark is not needed, and what counts as a change.

Its results: `tests/law`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.compiler.conftest import planned

from millstream.algebra.block import Block, Input, RecursionBlock
from millstream.frontier.snapshot import Snapshot
from millstream.refresh.evaluate import Evaluation
from millstream.refresh.reads.read_sql import schema_of
from millstream.refresh.report import Tally

OLD = Snapshot(10, 10)


class Access:
    """A double of the access paths: so many changed rows for each input."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.asked: list[str] = []

    def changes(self, one: Input, frontier: Snapshot) -> pa.Table:
        self.asked.append(one.name)
        schema = schema_of(one)
        values = [pa.nulls(self.rows, field.type) for field in schema]
        return pa.Table.from_arrays(values, schema=schema)

    def crossing(self, one: Input) -> None:
        return None


class SparkAsked(Exception):
    """Raised where Spark would be started."""


def no_spark() -> Any:
    raise SparkAsked


def evaluation(block: Block, rows: int) -> tuple[Evaluation, Access]:
    # Any: the double has only what is called here.
    access: Any = Access(rows)
    return Evaluation(block, no_spark, access, Tally()), access


def test_without_changes_there_is_no_result_and_spark_is_not_started() -> None:
    [block] = planned("SELECT t.id FROM public.t JOIN public.u ON u.a = t.a", "id")
    made, access = evaluation(block, rows=0)
    assert made.changes(OLD) is None
    assert access.asked == ["i0", "i1"]


def test_with_changes_spark_is_started() -> None:
    [block] = planned("SELECT t.id FROM public.t", "id")
    made, _ = evaluation(block, rows=1)
    with pytest.raises(SparkAsked):
        made.changes(OLD)


def test_the_first_rows_are_read_by_postgresql_itself() -> None:
    block, _ = planned("SELECT t.id FROM public.t ORDER BY t.a LIMIT 3", "id")
    made, _ = evaluation(block, rows=1)
    assert made.changes(OLD) is not None
    assert made.everything() is not None
    made, _ = evaluation(block, rows=0)
    assert made.changes(OLD) is None


def test_when_a_recursion_begins_its_own_rows_have_not_changed() -> None:
    text = (
        "WITH RECURSIVE r(n) AS (SELECT t.a FROM public.t UNION SELECT u.b FROM public.u JOIN r ON r.n = u.a) "
        "SELECT r.n FROM r"
    )
    block, _ = planned(text, "n", {'q."c0"': "int4"})
    assert isinstance(block, RecursionBlock)
    made, access = evaluation(block.terms[1].block, rows=0)
    assert made.changes(OLD) is None
    assert len(access.asked) == 1
