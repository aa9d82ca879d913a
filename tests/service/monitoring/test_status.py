"""The verbs status and history: what is there, how fresh it is, what waits.

They do not start Spark.
"""

from __future__ import annotations

import json

import psycopg
import pytest

from millstream import Millstream
from millstream.errors import BadSetting, NoSuchStreamTable


def test_a_stream_table_that_was_never_filled_has_no_age_and_nothing_waits(
    unfilled: Millstream,
) -> None:
    [found] = unfilled.status()
    assert (found.name, found.schema, found.schedule, found.owner) == (
        "totals",
        "public",
        "5m",
        "tester",
    )
    assert (found.data_timestamp, found.staleness_seconds, found.last_action) == (None, None, None)
    assert (found.pending_changes, found.consecutive_errors) == (0, 0)
    assert [(source.name, source.cdc_mode) for source in found.sources] == [
        ("public.orders", "TRIGGER")
    ]


def test_the_status_is_a_document(unfilled: Millstream) -> None:
    [found] = unfilled.status()
    document = json.loads(json.dumps(found.as_dict()))
    assert (document["data_timestamp"], document["next_try_at"]) == (None, None)
    assert document["sources"][0]["name"] == "public.orders"


def test_changes_wait_only_for_a_stream_table_that_was_filled(
    unfilled: Millstream, writer: psycopg.Connection
) -> None:
    before = writer.execute("SELECT pg_current_snapshot()::text").fetchall()[0]
    writer.execute("INSERT INTO orders VALUES (1, 'north', 5), (2, 'south', 7)")
    assert unfilled.status()[0].pending_changes == 0
    writer.execute("UPDATE millstream.stream_tables SET frontier = %s::pg_snapshot", before)
    assert unfilled.status()[0].pending_changes == 2


def test_a_history_of_nothing_is_empty_and_a_number_that_makes_no_sense_refused(
    unfilled: Millstream,
) -> None:
    assert unfilled.history("totals") == []
    assert unfilled.history("totals", n=0) == []
    for n in (-1, 1 << 31):
        with pytest.raises(BadSetting, match="bad value for n"):
            unfilled.history("totals", n=n)
    with pytest.raises(NoSuchStreamTable):
        unfilled.history("nosuch")
