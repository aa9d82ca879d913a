"""The verb create: which names and schemas a stream table may have."""

from __future__ import annotations

import psycopg
import pytest

from millstream.catalog import stream_tables
from millstream.client import Millstream
from millstream.errors import BadSetting

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "schema", ["millstream", "millstream_state", "pg_catalog", "information_schema"]
)
def test_schemas_of_the_server_and_of_millstream_are_refused_for_stream_tables(
    ms: Millstream, writer: psycopg.Connection, schema: str
) -> None:
    writer.execute("CREATE TABLE o (id int PRIMARY KEY)")
    with pytest.raises(BadSetting, match="schema of your own"):
        ms.create_stream_table(f"{schema}.x", "SELECT id FROM o")
    assert stream_tables.every(ms.app.conn) == []
