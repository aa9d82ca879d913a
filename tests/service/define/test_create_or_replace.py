"""The verb create_or_replace: one call, whatever is there."""

from __future__ import annotations

import psycopg
import pytest
from tests.service.define.test_redefine import QUERIES, TABLES

from millstream import Millstream
from millstream.testing import oracle

pytestmark = pytest.mark.spark


@pytest.fixture
def writer(writer: psycopg.Connection) -> psycopg.Connection:
    writer.execute(TABLES)
    return writer


def test_create_or_replace_creates_alters_or_does_nothing(
    ms: Millstream, writer: psycopg.Connection
) -> None:
    done = list[str]()
    for query, schedule in (
        (QUERIES[0], "1m"),
        (QUERIES[0], "5m"),
        (QUERIES[2], "5m"),
        (QUERIES[2], "5m"),
    ):
        report = ms.create_or_replace_stream_table("st", query, schedule=schedule)
        done.append(report.reason if report else "nothing")
        assert ms.app.named("st").schedule == schedule
        oracle.check(ms.app.conn, query, "st")
    assert done == ["INITIAL", "nothing", "QUERY_CHANGED", "nothing"]
