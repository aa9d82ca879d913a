"""The table of a stream table is ours by its name, its oid and a mark; two of three are not enough."""

from __future__ import annotations

import psycopg
import pytest

from millstream import Millstream
from millstream.catalog.target import targets
from millstream.errors import TargetMoved


def test_an_unchanged_table_is_recognized(unfilled: Millstream) -> None:
    conn, id_ = unfilled.app.conn, unfilled.app.named("totals").id
    [target] = targets.inspect(conn)
    assert (target.stream_table_id, target.state, str(target.found)) == (
        id_,
        "ours",
        '"public"."totals"',
    )
    assert targets.ours(conn, id_, "totals") == target.found


# What others do, the state of the table then, and what the error says.
OTHERWISE = [
    ("ALTER TABLE public.totals RENAME TO other", "another", "other"),
    ("ALTER TABLE public.totals RENAME TO other; CREATE TABLE public.totals (id int)", "another", "other"),
    ("DO $$ BEGIN EXECUTE 'COMMENT ON INDEX ' || (SELECT indexrelid::regclass FROM pg_index "
     "WHERE indrelid = 'public.totals'::regclass) || ' IS NULL'; END $$", "unmarked", "by a comment"),
]  # fmt: skip


def test_one_that_lacks_one_of_the_three_is_not(unfilled: Millstream) -> None:
    conn, id_ = unfilled.app.conn, unfilled.app.named("totals").id
    for ddl, state, says in OTHERWISE:
        with conn.transaction(force_rollback=True):
            conn.execute(ddl.encode())
            assert [target.state for target in targets.inspect(conn, [id_])] == [state]
            with pytest.raises(TargetMoved, match=says):
                targets.ours(conn, id_, "totals")


def test_a_table_that_was_dropped_is_absent_and_no_error(
    unfilled: Millstream, writer: psycopg.Connection
) -> None:
    id_ = unfilled.app.named("totals").id
    writer.execute("DROP TABLE totals")
    assert targets.ours(unfilled.app.conn, id_, "totals") is None


def test_the_marking_statements_restore_the_mark(
    unfilled: Millstream, writer: psycopg.Connection
) -> None:
    conn, id_ = unfilled.app.conn, unfilled.app.named("totals").id
    statements = targets.statements(conn, id_)
    for statement in statements:
        writer.execute(f"{statement.split(' IS ')[0]} IS NULL".encode())
    assert targets.inspect(conn, [id_])[0].state == "unmarked"
    targets.mark(conn, id_)
    assert targets.inspect(conn, [id_])[0].state == "ours"


def test_a_new_name_is_followed_only_while_the_former_one_is_free(
    unfilled: Millstream, writer: psycopg.Connection
) -> None:
    conn, id_ = unfilled.app.conn, unfilled.app.named("totals").id
    writer.execute("ALTER TABLE totals RENAME TO other; CREATE TABLE totals (id int)")
    assert not targets.follow(conn, id_)
    writer.execute("DROP TABLE totals")
    assert targets.follow(conn, id_)
    found = targets.ours(conn, id_, "other")
    assert found is not None
    assert found.name == "other"
