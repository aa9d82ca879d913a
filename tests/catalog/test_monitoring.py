"""The SQL functions and views by which a stream table is watched: what they show, and to whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from docs.monitoring import HELPERS, MONITORS
from psycopg.rows import dict_row

from millstream.capture.buffer import buffer_table
from millstream.catalog import blocks, history, slots, sources, stream_tables, upstreams
from millstream.catalog.history import Action, HistoryEntry
from millstream.catalog.installation import install, roles
from millstream.catalog.processes import leadership
from millstream.catalog.slots import Slot
from millstream.catalog.stream_tables import Advance, Status, StreamTable
from millstream.catalog.upstreams import Upstream
from millstream.errors import MillstreamError, RefreshFailed
from millstream.postgres.connection import Connection
from millstream.testing.waiting import wait_until

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _now() -> None:
    """Each test begins now: the module may have been imported long before."""
    global NOW
    NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def installed(conn: Connection) -> None:
    install.install(conn)


def add(conn: Connection, name: str, schedule: str = "1m", schema: str = "public") -> StreamTable:
    """A stream table with a table of its own, not filled yet."""
    table = stream_tables.add(
        conn,
        stream_tables.NewStreamTable(
            schema_name=schema,
            name=name,
            query="SELECT 1",
            canonical_query="SELECT 1",
            schedule=schedule,
        ),
    )
    conn.execute(f'CREATE TABLE {schema}."{name}" (a int)'.encode())
    relid = conn.execute("SELECT %s::regclass::oid", (f'{schema}."{name}"',)).fetchall()[0][0]
    stream_tables.attach(conn, table.id, relid)
    return stream_tables.get(conn, table.id)


def fill(
    conn: Connection, *tables: StreamTable, ago: timedelta = timedelta(0), action: str = "FULL"
) -> None:
    """Refresh these at one cut."""
    at = NOW - ago
    for table in tables:
        stream_tables.advance(
            conn, [table.id], Advance("10:10:", at, action=action, reason="INITIAL")
        )


def rows(conn: Connection, query: str, *parameters: object) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode(), parameters).fetchall()


def status(conn: Connection) -> dict[str, dict[str, Any]]:
    return {row["stream_table"]: row for row in rows(conn, "SELECT * FROM millstream.status()")}


def buffered(conn: Connection, name: str) -> int:
    """A table with a change buffer: its oid."""
    conn.execute(f"CREATE TABLE public.{name} (id int)".encode())
    relid: int = conn.execute("SELECT %s::regclass::oid", (f"public.{name}",)).fetchall()[0][0]
    sources.reserve(conn, relid, "public", name)
    buffer_table.make(conn, relid, ())
    return relid


def change(conn: Connection, relid: int, action: str = "I", origin: str = "t") -> None:
    insert = (
        f"INSERT INTO millstream_changes.changes_{relid} (xid, action, "
        "origin) VALUES (pg_current_xact_id(), %s, %s)"
    )
    conn.execute(insert.encode(), (action, origin))


def cut(conn: Connection, *tables: StreamTable) -> None:
    """Refresh these at a cut taken now."""
    snapshot = conn.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0]
    stream_tables.advance(
        conn, [table.id for table in tables], Advance(snapshot, datetime.now(UTC))
    )


def wait_for_refresh(conn: Connection, *tables: StreamTable) -> None:
    """Let a change wait for each of these."""
    for table in tables:
        source = buffered(conn, f"source_of_{table.id}")
        sources.add_dependency(conn, table.id, source, ["id"])
        change(conn, source)


# -- status ----------------------------------------------------------------------------------


def test_status_shows_how_old_each_stream_table_is_and_what_its_last_refresh_did(
    conn: Connection,
) -> None:
    fresh, stale, empty = add(conn, "fresh"), add(conn, "Stale"), add(conn, "empty")
    wait_for_refresh(conn, fresh, stale, empty)
    fill(conn, fresh)
    fill(conn, stale, ago=timedelta(minutes=3), action="DIFFERENTIAL")
    shown = status(conn)
    assert list(shown) == ['public."Stale"', "public.empty", "public.fresh"]
    assert [row["is_stale"] for row in shown.values()] == [True, False, False]
    old = shown['public."Stale"']
    assert (old["status"], old["last_action"], old["last_reason"]) == (
        "ACTIVE",
        "DIFFERENTIAL",
        "INITIAL",
    )
    assert old["data_timestamp"] == NOW - timedelta(minutes=3)
    assert old["staleness"] >= timedelta(minutes=3)
    assert (shown["public.empty"]["status"], shown["public.empty"]["staleness"]) == (
        "INITIALIZING",
        None,
    )
    assert stream_tables.get(conn, empty.id).frontier is None


@pytest.mark.parametrize(
    ("schedule", "is_stale"),
    [
        ("500ms", True),
        ("1h", True),
        ("2 h", False),
        ("1d", False),
        ("@hourly", False),
        ("*/5 * * * *", False),
    ],
)
def test_a_stream_table_is_stale_at_twice_a_schedule_that_is_a_duration(
    conn: Connection, schedule: str, is_stale: bool
) -> None:
    table = add(conn, "t", schedule)
    wait_for_refresh(conn, table)
    fill(conn, table, ago=timedelta(hours=3))
    assert status(conn)["public.t"]["is_stale"] is is_stale


def test_the_data_of_a_chain_is_as_old_as_the_oldest_and_the_upstream_is_named(
    conn: Connection,
) -> None:
    """The answer is that of `OlderUpstream`, which the Python API gives."""
    deep, base, middle, top = (
        add(conn, "deep"),
        add(conn, "base"),
        add(conn, "middle"),
        add(conn, "top"),
    )
    for reader, read in ((base, deep), (middle, base), (top, middle)):
        upstreams.put(conn, reader.id, [Upstream(read.id)])
    fill(conn, deep, ago=timedelta(hours=2))
    fill(conn, base, ago=timedelta(hours=1))
    fill(conn, middle, top)
    shown = status(conn)
    assert {row["data_timestamp"] for row in shown.values()} == {NOW - timedelta(hours=2)}
    # Only the one that was not refreshed with it, not what that one reads.
    assert [shown[f"public.{name}"]["held_back_by"] for name in ("deep", "base", "middle", "top")] == [
        [], ["public.deep"], ["public.base"], ["public.base"],
    ]  # fmt: skip
    behind = upstreams.older_than_cut(conn, [top.id], NOW)[top.id]
    assert [one.name for one in behind] == shown["public.top"]["held_back_by"]


def test_a_stream_table_for_which_no_change_waits_is_as_of_now(conn: Connection) -> None:
    """The service writes nothing while there is nothing to do, so the data timestamp grows old."""
    source, base, top = buffered(conn, "a"), add(conn, "base"), add(conn, "top")
    sources.add_dependency(conn, base.id, source, ["id"])
    upstreams.put(conn, top.id, [Upstream(base.id)])
    conn.execute("UPDATE millstream.stream_tables SET reads_clock = false")
    change(conn, source)
    at = NOW - timedelta(hours=2)
    for table in (base, top):
        snapshot = conn.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0]
        stream_tables.advance(conn, [table.id], Advance(snapshot, at))
    shown = status(conn)
    assert {
        (row["data_timestamp"], row["staleness"], row["is_stale"]) for row in shown.values()
    } == {(at, timedelta(0), False)}
    # A change of what the upstream reads.
    change(conn, source)
    assert {
        (row["staleness"] > timedelta(hours=2), row["is_stale"]) for row in status(conn).values()
    } == {(True, True)}
    cut(conn, base, top)
    assert not any(row["is_stale"] for row in status(conn).values())
    # What reads the clock is as of its last refresh.
    stream_tables.advance(conn, [top.id], Advance(snapshot, at))
    conn.execute("UPDATE millstream.stream_tables SET reads_clock = true WHERE name = 'top'")
    assert [row["is_stale"] for row in status(conn).values()] == [False, True]


def test_of_sources_captured_from_wal_it_is_known_up_to_the_cursor(conn: Connection) -> None:
    source, table = buffered(conn, "a"), add(conn, "t")
    sources.add_dependency(conn, table.id, source, ["id"])
    conn.execute("UPDATE millstream.stream_tables SET reads_clock = false")
    conn.execute("UPDATE millstream.sources SET cdc_mode = 'WAL'")
    snapshot = conn.execute("SELECT pg_current_snapshot()::text").fetchall()[0][0]
    stream_tables.advance(conn, [table.id], Advance(snapshot, NOW - timedelta(hours=5)))
    slots.put(conn, Slot("s", "s", 1, 1, "1", 1, 1, 1))
    conn.execute("UPDATE millstream.slots SET updated_at = clock_timestamp() - interval '2 hours'")

    def hours() -> float:
        return float(status(conn)["public.t"]["staleness"].total_seconds()) // 3600

    # WAL behind the cursor may hold changes of it; what was before it is in the buffer, and nothing
    # is.
    assert hours() == 2
    conn.execute("UPDATE millstream.slots SET cursor = 'FFFFFFFF/0'")
    assert hours() == 0
    change(conn, source, origin="l")
    assert hours() == 5


def test_errors_are_counted_with_the_time_of_the_next_try(conn: Connection) -> None:
    table = add(conn, "t")
    stream_tables.record_failure(conn, table.id, RefreshFailed("no room", detail="value 'secret'"))
    stream_tables.hold_off(conn, table.id, timedelta(seconds=8))
    [shown] = status(conn).values()
    assert (shown["consecutive_errors"], shown["transient_errors"], shown["error_code"]) == (
        1,
        0,
        RefreshFailed.code,
    )
    assert "secret" in shown["error"]
    assert shown["next_try_at"] == stream_tables.get(conn, table.id).next_try_at
    fill(conn, table)
    stream_tables.record_transient(conn, table.id, RefreshFailed("no room"))
    [shown] = status(conn).values()
    assert (shown["consecutive_errors"], shown["transient_errors"], shown["error_code"]) == (
        0,
        1,
        RefreshFailed.code,
    )


# -- names -----------------------------------------------------------------------------------


def test_a_name_is_read_as_postgresql_reads_it(conn: Connection) -> None:
    conn.execute('CREATE SCHEMA "My Shop"; CREATE SCHEMA other')
    first = add(conn, "Orders", schema='"My Shop"')
    conn.execute("UPDATE millstream.stream_tables SET schema_name = 'My Shop'")
    second, third = add(conn, "totals"), add(conn, "totals", schema="other")

    def found(name: str) -> int:
        return int(conn.execute("SELECT millstream.stream_table_id(%s)", (name,)).fetchall()[0][0])

    assert found('"My Shop"."Orders"') == first.id
    # Millstream's own sessions have the server's schemas in their path only.
    conn.execute("SET search_path = other, public")
    assert (found("TOTALS"), found("public.totals"), found("other.totals")) == (
        third.id,
        second.id,
        third.id,
    )
    conn.execute("SET search_path = public, other")
    assert found("totals") == second.id
    for unknown in ("nonesuch", "public.orders", "a.b.c"):
        with pytest.raises(psycopg.errors.UndefinedTable, match="no stream table is named"):
            found(unknown)


def test_staleness_is_that_of_one_stream_table(conn: Connection) -> None:
    table = add(conn, "t")
    wait_for_refresh(conn, table)
    fill(conn, table, ago=timedelta(hours=2))
    add(conn, "empty")
    query = "SELECT millstream.get_staleness('public.t') >= '2 hours', millstream.get_staleness('public.empty') IS NULL"
    assert conn.execute(query).fetchall() == [(True, True)]


# -- history ---------------------------------------------------------------------------------


def entry(
    table: StreamTable, action: Action, ms: int, *, error: MillstreamError | None = None
) -> HistoryEntry:
    return HistoryEntry(
        table.id, action, "R", "FAILED" if error else "COMPLETED", "MANUAL", NOW - timedelta(milliseconds=ms),
        finished_at=NOW, rows_read=ms, error=error.as_dict() if error else None,
    )  # fmt: skip


def test_the_history_of_a_stream_table_comes_newest_first(conn: Connection) -> None:
    table, other = add(conn, "t"), add(conn, "other")
    history.add_all(
        conn, [entry(table, "FULL", 300), entry(table, "DIFFERENTIAL", 20), entry(other, "FULL", 1)]
    )
    history.add(conn, entry(table, "SKIP", 5, error=RefreshFailed("no room")))
    found = rows(conn, "SELECT * FROM millstream.get_refresh_history('public.t')")
    assert [(row["action"], row["status"], int(row["duration_ms"])) for row in found] == [
        ("SKIP", "FAILED", 5), ("DIFFERENTIAL", "COMPLETED", 20), ("FULL", "COMPLETED", 300),
    ]  # fmt: skip
    assert (found[0]["error_code"], found[0]["error"]) == (RefreshFailed.code, "no room")
    assert len(rows(conn, "SELECT * FROM millstream.get_refresh_history('public.t', 2)")) == 2


def test_refreshes_are_counted_and_timed(conn: Connection) -> None:
    table = add(conn, "t")
    add(conn, "unused")
    history.add_all(
        conn,
        [entry(table, "DIFFERENTIAL", 10 * n) for n in range(1, 11)] + [entry(table, "FULL", 500)],
    )
    history.add(conn, entry(table, "SKIP", 9000, error=RefreshFailed("no room")))
    found = {
        row["stream_table"]: row
        for row in rows(conn, "SELECT * FROM millstream.st_refresh_stats()")
    }
    shown = found["public.t"]
    assert [shown[name] for name in ("refreshes", "failed", "differential", "full", "no_data")] == [
        11,
        1,
        10,
        1,
        0,
    ]
    assert (int(shown["mean_ms"]), int(shown["p95_ms"]), int(shown["max_ms"])) == (95, 300, 500)
    assert (found["public.unused"]["refreshes"], found["public.unused"]["mean_ms"]) == (0, None)
    # An older period has none of them.
    conn.execute(
        "UPDATE millstream.refresh_history SET started_at = started_at - interval '2 days'"
    )
    assert rows(conn, "SELECT refreshes FROM millstream.st_refresh_stats()")[0]["refreshes"] == 0
    week = rows(
        conn,
        "SELECT refreshes FROM millstream.st_refresh_stats('7 days') WHERE stream_table = 'public.t'",
    )
    assert week[0]["refreshes"] == 11


# -- capture ---------------------------------------------------------------------------------


def test_each_source_of_each_stream_table_is_shown_with_its_capture(conn: Connection) -> None:
    relid = buffered(conn, "a")
    buffered(conn, "b")
    for name, columns in (("t", ["id", "v"]), ("u", ["v"])):
        sources.add_dependency(conn, add(conn, name).id, relid, columns)
    shown = rows(conn, "SELECT * FROM millstream.pg_stat_stream_tables ORDER BY name")
    assert [(row["name"], row["source"], row["columns"]) for row in shown] == [
        ("t", "public.a", ["id", "v"]), ("u", "public.a", ["v"]),
    ]  # fmt: skip
    facts = ("cdc_mode", "slot_name", "slot_lag_bytes", "decoder_status", "alert")
    assert {tuple(row[fact] for fact in facts) for row in shown} == {
        ("TRIGGER", None, None, None, None)
    }
    # Captured from WAL by a slot that nobody has made yet.
    conn.execute("UPDATE millstream.sources SET cdc_mode = 'WAL' WHERE name = 'a'")
    alerts = rows(conn, "SELECT DISTINCT alert FROM millstream.pg_stat_stream_tables")
    assert alerts == [{"alert": "There is no slot."}]
    conn.execute("DROP TABLE a")
    alerts = rows(
        conn,
        "SELECT source::text, alert FROM millstream.check_cdc_health() WHERE alert IS NOT NULL",
    )
    assert alerts == [{"source": str(relid), "alert": "The table was dropped."}]


def test_after_a_truncation_or_a_gap_the_next_refresh_reinitialises(conn: Connection) -> None:
    source, table = buffered(conn, "a"), add(conn, "t")
    sources.add_dependency(conn, table.id, source, ["id"])

    def needs_reinit() -> bool:
        [row] = rows(
            conn, "SELECT needs_reinit FROM millstream.stream_tables_info WHERE name = 't'"
        )
        return bool(row["needs_reinit"])

    change(conn, source, "X", "m")
    # It has never been filled.
    assert not needs_reinit()
    cut(conn, table)
    # What it has seen, changes of rows, and what the other way of capture has marked.
    change(conn, source)
    change(conn, source, "X", "l")
    assert not needs_reinit()
    for action in ("T", "X"):
        change(conn, source, action)
        assert needs_reinit()
        cut(conn, table)
        assert not needs_reinit()
    stream_tables.start_over(conn, table.id)
    assert needs_reinit()


def test_a_stream_table_is_explained_from_the_catalog(conn: Connection) -> None:
    source, base, table = buffered(conn, "a"), add(conn, "base"), add(conn, "t")
    sources.add_dependency(conn, table.id, source, ["id"])
    upstreams.put(conn, table.id, [Upstream(base.id)])
    blocks.add(conn, table.id, [blocks.RecordedBlock(0, "main", "none", None, "SCAN a")])
    history.add_all(conn, [entry(table, "DIFFERENTIAL", 20)])
    explained = rows(conn, "SELECT * FROM millstream.explain_st('public.t')")
    assert [(row["part"], row["name"]) for row in explained] == [
        ("stream table", "public.t"), ("query", None), ("block", "main"), ("source", "public.a"),
        ("upstream", "public.base"), ("last refresh", "DIFFERENTIAL"),
    ]  # fmt: skip
    told = [row["detail"] for row in explained]
    assert told[0].startswith("INITIALIZING, AUTO, schedule 1m, owner ")
    assert told[1:5] == ["SELECT 1", "SCAN a", "TRIGGER, columns id", "INITIALIZING, schedule 1m"]
    assert "20 rows read" in told[5]


# -- health ----------------------------------------------------------------------------------


def health(conn: Connection, name: str) -> tuple[str, str]:
    """The status of a check and what it found; there is one of that name."""
    found = rows(
        conn,
        "SELECT status, detail, hint FROM millstream.health_check() WHERE check_name = %s",
        name,
    )
    assert len(found) == 1, found
    assert found[0]["status"] == "OK" or found[0]["hint"]
    return found[0]["status"], found[0]["detail"]


def worst(conn: Connection) -> set[str]:
    return {
        row["check_name"]
        for row in rows(
            conn, "SELECT check_name FROM millstream.health_check() WHERE status <> 'OK'"
        )
    }


def test_an_empty_catalog_is_healthy(conn: Connection) -> None:
    assert worst(conn) == set()
    assert health(conn, "stream tables") == ("OK", "0 of 0 without anything to report")


def test_a_missing_service_is_reported_if_a_stream_table_has_a_schedule(
    conn: Connection, another: Callable[[], Connection]
) -> None:
    fill(conn, add(conn, "by_hand", "manual"))
    assert health(conn, "service")[0] == "OK"
    fill(conn, add(conn, "t"))
    status, told = health(conn, "service")
    assert (status, told.startswith("No service runs")) == ("WARN", True)
    session, instance = another(), uuid4()
    backend = session.info.backend_pid
    leadership.register(session, leadership.Registration(instance, 77, "here", "0", backend))
    leadership.take_over(session, instance)
    other = another()
    leadership.register(
        other, leadership.Registration(uuid4(), 78, "there", "0", other.info.backend_pid)
    )
    status, told = health(conn, "service")
    assert (status, "process 77 on here" in told, told.endswith("; 1 standby")) == (
        "OK",
        True,
        True,
    )
    shown = rows(conn, "SELECT role, pid, alive, epoch FROM millstream.service_status()")
    assert [tuple(row.values()) for row in shown] == [
        ("LEADER", 77, True, 1),
        ("STANDBY", 78, True, None),
    ]
    session.close()
    assert wait_until(lambda: health(conn, "service")[0] == "WARN")


def test_each_problem_of_a_stream_table_is_reported_with_a_hint(conn: Connection) -> None:
    names = (
        "fine",
        "failed",
        "waits",
        "stopped",
        "suspended",
        "broken",
        "wrong",
        "empty",
        "stale",
        "held_back",
        "old",
    )
    tables = {name: add(conn, name) for name in names}
    fill(
        conn,
        *(
            table
            for name, table in tables.items()
            if name not in ("empty", "stale", "held_back", "old")
        ),
    )
    error = RefreshFailed("no room for 'secret'")
    for name in ("failed", "suspended", "broken"):
        stream_tables.record_failure(conn, tables[name].id, error)
    stream_tables.record_transient(conn, tables["waits"].id, error)
    stream_tables.set_status(conn, tables["suspended"].id, "SUSPENDED")
    stream_tables.set_status(conn, tables["stopped"].id, "SUSPENDED")
    stream_tables.set_status(conn, tables["broken"].id, "ERROR")
    conn.execute(
        "UPDATE millstream.stream_tables SET last_verified_ok = false WHERE name = 'wrong'"
    )
    upstreams.put(conn, tables["held_back"].id, [Upstream(tables["old"].id)])
    wait_for_refresh(conn, tables["stale"], tables["old"])
    fill(conn, tables["stale"], tables["old"], ago=timedelta(hours=1))
    fill(conn, tables["held_back"])
    found = {
        row["check_name"].partition(".")[2]: (row["status"], row["detail"], row["hint"])
        for row in rows(
            conn, "SELECT * FROM millstream.health_check() WHERE check_name LIKE 'stream table %%'"
        )
    }
    assert {name: told[0] for name, told in found.items()} == {
        "failed": "WARN", "waits": "WARN", "stopped": "WARN", "suspended": "ERROR", "broken": "ERROR", "wrong": "ERROR",
        "empty": "WARN", "stale": "WARN", "held_back": "WARN", "old": "WARN",
    }  # fmt: skip
    assert all(told[2] for told in found.values())
    assert "secret" not in str(found)
    assert RefreshFailed.code in found["suspended"][1]
    assert "public.old" in found["held_back"][1]
    assert health(conn, "stream tables") == ("OK", "1 of 11 without anything to report")


def test_a_source_that_is_not_captured_is_an_error(conn: Connection) -> None:
    buffered(conn, "a")
    assert health(conn, "sources") == ("OK", "1 captured by triggers, 0 from WAL, 0 in transition")
    conn.execute("UPDATE millstream.sources SET cdc_mode = 'WAL'")
    assert health(conn, "source public.a") == ("ERROR", "There is no slot.")


def test_waiting_requests_are_reported(conn: Connection) -> None:
    conn.execute("SELECT millstream.validate_query('SELECT 1')")
    assert health(conn, "requests")[0] == "OK"
    conn.execute("UPDATE millstream.requests SET requested_at = requested_at - interval '5 min'")
    status, told = health(conn, "requests")
    assert (status, told.startswith("1 waiting, the first one for 00:05")) == ("WARN", True)


HELD_BACK = {
    "by hand": ("manual", "ACTIVE", True),
    "suspended": ("1s", "SUSPENDED", True),
    "in error": ("1s", "ERROR", True),
    "calculated for nobody": ("calculated", "ACTIVE", True),
    "refreshed by itself": ("1s", "ACTIVE", False),
}


@pytest.mark.parametrize(("schedule", "state", "holds"), HELD_BACK.values(), ids=list(HELD_BACK))
def test_a_buffer_waits_for_a_reader_that_is_not_refreshed_by_itself(
    conn: Connection, schedule: str, state: Status, holds: bool
) -> None:
    source, reader, other = (
        buffered(conn, "a"),
        add(conn, "reader", schedule),
        add(conn, "other", "1s"),
    )
    for table in (reader, other):
        sources.add_dependency(conn, table.id, source, ["id"])
    cut(conn, reader, other)
    stream_tables.set_status(conn, reader.id, state)
    assert rows(conn, "SELECT * FROM millstream.held_back_buffers()") == []
    change(conn, source)
    cut(conn, other)
    shown = rows(
        conn,
        "SELECT source, buffer, held_back_by, size_bytes > 0 AS has_size FROM millstream.held_back_buffers()",
    )
    told = {
        "source": "public.a",
        "buffer": f"millstream_changes.changes_{source}",
        "held_back_by": ["public.reader"],
    }
    assert shown == ([{**told, "has_size": True}] if holds else [])
    if holds:
        assert health(conn, "change buffer of public.a")[0] == "OK"
        conn.execute("INSERT INTO millstream.settings VALUES ('slot_lag_warning', '1B')")
        status, found = health(conn, "change buffer of public.a")
        assert (status, "wait for public.reader since" in found) == ("WARN", True)


def test_the_reference_has_every_column(conn: Connection) -> None:
    query = """
        SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum)
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
        WHERE c.oid = ANY (%s::regclass[])
        GROUP BY c.relname
        UNION ALL
        SELECT p.proname, ARRAY(
            SELECT n FROM unnest(p.proargnames, p.proargmodes) WITH ORDINALITY AS o (n, mode, place)
            WHERE o.mode = 't' ORDER BY o.place
        )
        FROM pg_proc AS p
        WHERE p.oid = ANY (%s::regprocedure[])
    """
    found: dict[str, list[str]] = dict(
        conn.execute(query, (list(roles.VIEWS), list(roles.FUNCTIONS))).fetchall()
    )
    described = {one.name: list(one.columns) for one in MONITORS}
    assert described == {name: columns for name, columns in found.items() if name not in HELPERS}


# -- who sees what ---------------------------------------------------------------------------


@pytest.fixture
def reader(conn: Connection) -> Iterator[str]:
    """A role with the rights of millstream_reader: its name."""
    name = f"reader_{conn.info.dbname}"
    conn.execute(f"CREATE ROLE {name}; GRANT USAGE ON SCHEMA millstream TO {name}".encode())
    conn.execute(f"GRANT SELECT ON {', '.join(roles.VIEWS)} TO {name}".encode())
    conn.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA millstream TO {name}".encode())
    yield name
    conn.execute(f"RESET ROLE; DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


def test_the_text_of_an_error_is_for_roles_with_the_rights_of_the_owner(
    conn: Connection, reader: str
) -> None:
    table, own = add(conn, "t"), add(conn, "own")
    conn.execute(f"ALTER TABLE public.own OWNER TO {reader}".encode())
    for one in (table, own):
        stream_tables.record_failure(conn, one.id, RefreshFailed("value 'secret'"))
        history.add(conn, entry(one, "SKIP", 5, error=RefreshFailed("value 'secret'")))
        blocks.add(
            conn, one.id, [blocks.RecordedBlock(0, "main", "none", None, "SCAN t WHERE a = 1")]
        )
    conn.execute(f"SET ROLE {reader}".encode())
    shown = status(conn)
    assert "secret" not in str(shown["public.t"])
    assert shown["public.t"]["error_code"] == RefreshFailed.code
    assert "secret" in shown["public.own"]["error"]
    for name, sees in (("t", False), ("own", True)):
        [past] = rows(conn, "SELECT * FROM millstream.get_refresh_history(%s)", f"public.{name}")
        assert ("secret" in str(past), past["error_code"]) == (sees, RefreshFailed.code)
        explained = rows(conn, "SELECT * FROM millstream.explain_st(%s)", f"public.{name}")
        assert ("SELECT 1" in str(explained), "SCAN" in str(explained)) == (sees, sees)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("SELECT FROM millstream.stream_tables")
