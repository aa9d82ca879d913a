"""Messages: read back as they were written, by hand and by a real server."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.wal.messages import protocol
from millstream.capture.wal.messages.protocol import (
    UNCHANGED,
    Begin,
    Cells,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Parsed,
    RelationColumn,
    RelationMessage,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Unknown,
    Update,
    parse,
)
from millstream.errors import WalNotUnderstood
from millstream.postgres.connection import Connection
from millstream.testing.pgoutput import encode, frame, keepalive

if TYPE_CHECKING:
    from tests.capture.wal.conftest import Log

LSNS = st.integers(0, 2**63 - 1)
OIDS = st.integers(0, 2**32 - 1)
NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20
)
CELLS = st.lists(st.one_of(st.binary(max_size=20), st.none(), st.just(UNCHANGED)), max_size=6).map(
    tuple
)
COLUMNS = st.lists(
    st.builds(RelationColumn, NAMES, OIDS, st.integers(-1, 2**31 - 1), st.booleans()), max_size=6
).map(tuple)

MESSAGES: st.SearchStrategy[Parsed] = st.one_of(
    st.builds(Begin, LSNS, OIDS),
    st.builds(Commit, LSNS, LSNS),
    st.builds(RelationMessage, OIDS, NAMES, NAMES, st.sampled_from("dnfi"), COLUMNS),
    st.builds(Insert, OIDS, CELLS),
    st.builds(Update, OIDS, CELLS),
    st.builds(Update, OIDS, CELLS, CELLS, st.sampled_from("KO")),
    st.builds(Delete, OIDS, CELLS, st.sampled_from("KO")),
    st.builds(Truncate, st.lists(OIDS, max_size=4).map(tuple)),
    st.builds(LogicalMessage, st.booleans(), LSNS, NAMES, st.binary(max_size=20)),
    st.builds(StreamStart, OIDS, st.booleans()),
    st.just(StreamStop()),
    st.builds(StreamCommit, OIDS, LSNS, LSNS),
    st.builds(StreamAbort, OIDS, OIDS),
)


@given(MESSAGES, st.none() | OIDS)
def test_a_message_is_read_as_it_was_written(message: Parsed, xid: int | None) -> None:
    assert parse(encode(message, xid), in_chunk=xid is not None) == message
    assert parse(frame(encode(message)), at=protocol.HEADER) == message


@given(MESSAGES, st.data())
def test_a_message_that_is_cut_short_is_an_error(message: Parsed, data: st.DataObject) -> None:
    whole = encode(message)
    short = whole[: data.draw(st.integers(1, len(whole)))]
    try:
        parse(short)
    except WalNotUnderstood:
        assert short != whole


@pytest.mark.parametrize("letter", ["Y", "O", "b", "P", "K", "r", "p", "?"])
def test_a_message_of_an_unknown_kind_is_passed_over(letter: str) -> None:
    assert parse(letter.encode() + b"whatever") == Unknown(letter)


def test_a_value_of_an_unknown_kind_is_an_error() -> None:
    message = encode(Insert(1, (b"x",))).replace(b"t", b"b")
    with pytest.raises(WalNotUnderstood, match="cannot decode"):
        parse(message)


def test_keepalives_and_status() -> None:
    assert protocol.keepalive(keepalive(7, wants_reply=True)) == protocol.Keepalive(
        7, wants_reply=True
    )
    letter, written, flushed, applied, _, ask = struct.unpack(
        ">cQQQqB", protocol.status(9, ask=True)
    )
    assert (letter, written, flushed, applied, ask) == (b"r", 9, 9, 9, 1)
    with pytest.raises(ValueError, match="without a position"):
        protocol.status(0)


# -- a real server ---------------------------------------------------------------------------

_PEEK = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
    " 'proto_version', %s, 'publication_names', %s, 'messages', 'true', 'streaming', %s)"
)


def _peek(conn: Connection, slot: str, *, in_chunks: bool = False) -> list[Parsed]:
    options = ("2", "on") if in_chunks else ("1", "off")
    rows = conn.execute(_PEEK, (slot, options[0], slot, options[1])).fetchall()
    parsed, inside = [], False
    for (data,) in rows:
        message = parse(data, in_chunk=inside)
        inside = isinstance(message, StreamStart) or (
            inside and not isinstance(message, StreamStop)
        )
        parsed.append(message)
    return parsed


def test_what_a_server_sends_is_read(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, v text, big text)")
    conn.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    t = log.capture("t")
    assert log.slot is not None
    big = "x" * 5000
    with conn.transaction():
        xid = int(conn.execute("SELECT pg_current_xact_id()::text").fetchall()[0][0])
        conn.execute("INSERT INTO t VALUES (1, NULL, %s)", (big,))
        conn.execute("UPDATE t SET v = 'é\t'")
        conn.execute("DELETE FROM t")
        conn.execute("TRUNCATE t")
        conn.execute("SELECT pg_logical_emit_message(true, 'p', 'content')")
    begin, relation, *changes, commit = _peek(conn, log.slot.name)
    # TRUNCATE has the layout told again.
    changes = [message for message in changes if message != relation]
    assert isinstance(begin, Begin)
    assert isinstance(commit, Commit)
    assert begin.xid == xid & 0xFFFFFFFF
    assert begin.commit_lsn == commit.commit_lsn < commit.end_lsn
    columns = (
        RelationColumn("id", 23, -1, True),
        RelationColumn("v", 25, -1, True),
        RelationColumn("big", 25, -1, True),
    )
    assert relation == RelationMessage(t.source.relid, "public", "t", "f", columns)
    first: Cells = (b"1", None, big.encode())
    second: Cells = (b"1", "é\t".encode(), big.encode())
    assert changes[:3] == [
        Insert(t.source.relid, first),
        Update(t.source.relid, (b"1", "é\t".encode(), UNCHANGED), first, "O"),
        Delete(t.source.relid, second, "O"),
    ]
    assert changes[3] == Truncate((t.source.relid,))
    assert isinstance(changes[4], LogicalMessage)
    assert (changes[4].prefix, changes[4].content, changes[4].is_transactional) == (
        "p",
        b"content",
        True,
    )


def test_a_key_is_distinguished_from_an_old_row(conn: Connection, log: Log) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    t = log.capture("t")
    assert log.slot is not None
    conn.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
    conn.execute("INSERT INTO t VALUES (1, 'one')")
    conn.execute("UPDATE t SET v = 'two'")
    conn.execute("UPDATE t SET id = 2")
    conn.execute("DELETE FROM t")
    relid = t.source.relid
    kinds = (Update, Delete)
    assert [message for message in _peek(conn, log.slot.name) if isinstance(message, kinds)] == [
        Update(relid, (b"1", b"two")),
        Update(relid, (b"2", b"two"), (b"1", None), "K"),
        Delete(relid, (b"2", None), "K"),
    ]


def test_transactions_in_chunks_are_read(conn: Connection, log: Log) -> None:
    conn.execute("SET logical_decoding_work_mem = '64kB'")
    conn.execute("CREATE TABLE t (id int, v text)")
    log.capture("t")
    assert log.slot is not None
    with conn.transaction():
        conn.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 3000) AS g")
        with conn.transaction(force_rollback=True):
            conn.execute(
                "INSERT INTO t SELECT g, repeat('y', 100) FROM generate_series(1, 3000) AS g"
            )
    messages = _peek(conn, log.slot.name, in_chunks=True)
    kinds = [type(message).__name__ for message in messages]
    assert kinds.count("StreamStart") == kinds.count("StreamStop") > 1
    assert kinds[-1] == "StreamCommit"
    assert "Unknown" not in kinds
