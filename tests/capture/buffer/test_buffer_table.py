"""The buffer of a source: columns come when a reader needs them, and marks say that rows are
missing.
"""

from __future__ import annotations

import pytest

from millstream.capture.buffer import buffer_table
from millstream.capture.buffer.slices import GAPS
from millstream.catalog.installation import install
from millstream.catalog.sources import CapturedColumn
from millstream.postgres.connection import Connection

ID, NAME = (
    CapturedColumn(1, "id", 23, "integer"),
    CapturedColumn(2, "name", 25, "text", collation=100),
)
COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = 'millstream_changes.changes_7'::regclass AND attname ~ '^c[0-9]+$' AND NOT attisdropped
    ORDER BY attnum
"""


@pytest.fixture
def buffer(conn: Connection) -> Connection:
    """A connection to a database with an empty buffer of the source 7, whose column 1 is captured."""
    install.install(conn)
    buffer_table.make(conn, 7, [ID])
    return conn


def test_a_missing_column_is_added_and_what_is_there_stays(buffer: Connection) -> None:
    buffer.execute(
        "INSERT INTO millstream_changes.changes_7 (xid, action, c1) VALUES ('9', 'I', 5)"
    )
    buffer_table.make(buffer, 7, [ID, NAME])
    buffer_table.make(buffer, 7, [NAME])
    assert buffer.execute(COLUMNS).fetchall() == [("c1", "integer"), ("c2", "text")]
    assert buffer.execute("SELECT c1, c2 FROM millstream_changes.changes_7").fetchall() == [
        (5, None)
    ]


def test_a_column_of_another_type_is_added_again_empty(buffer: Connection) -> None:
    buffer.execute(
        "INSERT INTO millstream_changes.changes_7 (xid, action, c1) VALUES ('9', 'I', 5)"
    )
    buffer_table.make(buffer, 7, [CapturedColumn(1, "id", 20, "bigint")])
    assert buffer.execute(COLUMNS).fetchall() == [("c1", "bigint")]
    assert buffer.execute("SELECT c1 FROM millstream_changes.changes_7").fetchall() == [(None,)]


@pytest.mark.parametrize("cause", GAPS)
def test_a_mark_is_a_row_of_this_transaction_with_its_cause(buffer: Connection, cause: str) -> None:
    with buffer.transaction():
        buffer_table.mark(buffer, 7, cause)
        own = "SELECT action, origin, xid = pg_current_xact_id() FROM millstream_changes.changes_7"
        assert buffer.execute(own).fetchall() == [("X", GAPS[cause][0], True)]


def test_it_is_dropped_with_its_rows_and_twice_is_no_error(buffer: Connection) -> None:
    buffer_table.drop(buffer, 7)
    buffer_table.drop(buffer, 7)
    assert buffer.execute("SELECT to_regclass('millstream_changes.changes_7')").fetchone() == (
        None,
    )
