"""The SQL functions and views by which a stream table is watched: what they show, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from millstream.catalog import history, stream_tables, upstreams
from millstream.catalog.history import Action, HistoryEntry
from millstream.catalog.installation import install
from millstream.catalog.stream_tables import StreamTable
from millstream.catalog.upstreams import Upstream
from millstream.errors import MillstreamError, RefreshFailed
from millstream.postgres.connection import Connection

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def installed(conn: Connection) -> None:
    install.install(conn)


def add(conn: Connection, name: str, schedule: str = "1m", schema: str = "public") -> StreamTable:
    """A stream table with a table of its own, not filled yet."""
    table = stream_tables.add(
        conn, schema_name=schema, name=name, query="SELECT 1", canonical_query="SELECT 1", schedule=schedule
    )
    conn.execute(f'CREATE TABLE {schema}."{name}" (a int)'.encode())
    relid = conn.execute("SELECT %s::regclass::oid", (f'{schema}."{name}"',)).fetchall()[0][0]
    stream_tables.attach(conn, table.id, relid)
    return stream_tables.get(conn, table.id)


def fill(conn: Connection, *tables: StreamTable, ago: timedelta = timedelta(0), action: str = "FULL") -> None:
    """Refresh these at one cut."""
    at = NOW - ago
    for table in tables:
        stream_tables.advance(conn, [table.id], "10:10:", at, action=action, reason="INITIAL")


def rows(conn: Connection, query: str, *parameters: object) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode(), parameters).fetchall()


def status(conn: Connection) -> dict[str, dict[str, Any]]:
    return {row["stream_table"]: row for row in rows(conn, "SELECT * FROM millstream.status()")}


# -- status ----------------------------------------------------------------------------------


def test_status_shows_how_old_each_stream_table_is_and_what_its_last_refresh_did(conn: Connection) -> None:
    fresh, stale, empty = add(conn, "fresh"), add(conn, "Stale"), add(conn, "empty")
    fill(conn, fresh)
    fill(conn, stale, ago=timedelta(minutes=3), action="DIFFERENTIAL")
    shown = status(conn)
    assert list(shown) == ['public."Stale"', "public.empty", "public.fresh"]
    assert [row["is_stale"] for row in shown.values()] == [True, False, False]
    old = shown['public."Stale"']
    assert (old["status"], old["last_action"], old["last_reason"]) == ("ACTIVE", "DIFFERENTIAL", "INITIAL")
    assert old["data_timestamp"] == NOW - timedelta(minutes=3)
    assert old["staleness"] >= timedelta(minutes=3)
    assert (shown["public.empty"]["status"], shown["public.empty"]["staleness"]) == ("INITIALIZING", None)
    assert stream_tables.get(conn, empty.id).frontier is None


@pytest.mark.parametrize(
    ("schedule", "is_stale"),
    [("500ms", True), ("1h", True), ("2 h", False), ("1d", False), ("@hourly", False), ("*/5 * * * *", False)],
)
def test_a_stream_table_is_stale_at_twice_a_schedule_that_is_a_duration(
    conn: Connection, schedule: str, is_stale: bool
) -> None:
    fill(conn, add(conn, "t", schedule), ago=timedelta(hours=3))
    assert status(conn)["public.t"]["is_stale"] is is_stale


def test_the_data_of_a_chain_is_as_old_as_the_oldest_and_the_upstream_is_named(conn: Connection) -> None:
    """The answer is that of `Behind`, which the Python API gives."""
    base, middle, top = add(conn, "base"), add(conn, "middle"), add(conn, "top")
    upstreams.put(conn, middle.id, [Upstream(base.id)])
    upstreams.put(conn, top.id, [Upstream(middle.id)])
    fill(conn, base, ago=timedelta(hours=1))
    fill(conn, middle, top)
    shown = status(conn)
    assert {row["data_timestamp"] for row in shown.values()} == {NOW - timedelta(hours=1)}
    assert [shown[f"public.{name}"]["held_back_by"] for name in ("base", "middle", "top")] == [
        [], ["public.base"], ["public.base"],
    ]  # fmt: skip
    behind = upstreams.behind(conn, [top.id], NOW)[top.id]
    assert [one.name for one in behind] == shown["public.top"]["held_back_by"]


def test_errors_are_counted_with_the_time_of_the_next_try(conn: Connection) -> None:
    table = add(conn, "t")
    stream_tables.record_failure(conn, table.id, RefreshFailed("no room", detail="value 'secret'"))
    stream_tables.hold_off(conn, table.id, timedelta(seconds=8))
    [shown] = status(conn).values()
    assert (shown["consecutive_errors"], shown["transient_errors"], shown["error_code"]) == (1, 0, RefreshFailed.code)
    assert "secret" in shown["error"]
    assert shown["next_try_at"] == stream_tables.get(conn, table.id).next_try_at
    fill(conn, table)
    stream_tables.record_transient(conn, table.id, RefreshFailed("no room"))
    [shown] = status(conn).values()
    assert (shown["consecutive_errors"], shown["transient_errors"], shown["error_code"]) == (0, 1, RefreshFailed.code)


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
    assert (found("TOTALS"), found("public.totals"), found("other.totals")) == (third.id, second.id, third.id)
    conn.execute("SET search_path = public, other")
    assert found("totals") == second.id
    for unknown in ("nonesuch", "public.orders", "a.b.c"):
        with pytest.raises(psycopg.errors.UndefinedTable, match="no stream table is named"):
            found(unknown)


def test_staleness_is_that_of_one_stream_table(conn: Connection) -> None:
    fill(conn, add(conn, "t"), ago=timedelta(hours=2))
    add(conn, "empty")
    query = "SELECT millstream.get_staleness('public.t') >= '2 hours', millstream.get_staleness('public.empty') IS NULL"
    assert conn.execute(query).fetchall() == [(True, True)]


# -- history ---------------------------------------------------------------------------------


def entry(table: StreamTable, action: Action, ms: int, *, error: MillstreamError | None = None) -> HistoryEntry:
    return HistoryEntry(
        table.id, action, "R", "FAILED" if error else "COMPLETED", "MANUAL", NOW - timedelta(milliseconds=ms),
        finished_at=NOW, rows_read=ms, error=error.as_dict() if error else None,
    )  # fmt: skip


def test_the_history_of_a_stream_table_comes_newest_first(conn: Connection) -> None:
    table, other = add(conn, "t"), add(conn, "other")
    history.add_all(conn, [entry(table, "FULL", 300), entry(table, "DIFFERENTIAL", 20), entry(other, "FULL", 1)])
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
    history.add_all(conn, [entry(table, "DIFFERENTIAL", 10 * n) for n in range(1, 11)] + [entry(table, "FULL", 500)])
    history.add(conn, entry(table, "SKIP", 9000, error=RefreshFailed("no room")))
    found = {row["stream_table"]: row for row in rows(conn, "SELECT * FROM millstream.st_refresh_stats()")}
    shown = found["public.t"]
    assert [shown[name] for name in ("refreshes", "failed", "differential", "full", "no_data")] == [11, 1, 10, 1, 0]
    assert (int(shown["mean_ms"]), int(shown["p95_ms"]), int(shown["max_ms"])) == (95, 300, 500)
    assert (found["public.unused"]["refreshes"], found["public.unused"]["mean_ms"]) == (0, None)
    # An older period has none of them.
    conn.execute("UPDATE millstream.refresh_history SET started_at = started_at - interval '2 days'")
    assert rows(conn, "SELECT refreshes FROM millstream.st_refresh_stats()")[0]["refreshes"] == 0
    week = rows(conn, "SELECT refreshes FROM millstream.st_refresh_stats('7 days') WHERE stream_table = 'public.t'")
    assert week[0]["refreshes"] == 11


# -- who sees what ---------------------------------------------------------------------------


@pytest.fixture
def reader(conn: Connection) -> Iterator[str]:
    """A role with the rights of millstream_reader: its name."""
    name = f"reader_{conn.info.dbname}"
    conn.execute(f"CREATE ROLE {name}; GRANT USAGE ON SCHEMA millstream TO {name}".encode())
    conn.execute(f"GRANT SELECT ON millstream.stream_tables_info, millstream.refresh_history_info TO {name}".encode())
    conn.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA millstream TO {name}".encode())
    yield name
    conn.execute(f"RESET ROLE; DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


def test_the_text_of_an_error_is_for_roles_with_the_rights_of_the_owner(conn: Connection, reader: str) -> None:
    table, own = add(conn, "t"), add(conn, "own")
    conn.execute(f"ALTER TABLE public.own OWNER TO {reader}".encode())
    for one in (table, own):
        stream_tables.record_failure(conn, one.id, RefreshFailed("value 'secret'"))
        history.add(conn, entry(one, "SKIP", 5, error=RefreshFailed("value 'secret'")))
    conn.execute(f"SET ROLE {reader}".encode())
    shown = status(conn)
    assert "secret" not in str(shown["public.t"])
    assert shown["public.t"]["error_code"] == RefreshFailed.code
    assert "secret" in shown["public.own"]["error"]
    for name, sees in (("t", False), ("own", True)):
        [past] = rows(conn, "SELECT * FROM millstream.get_refresh_history(%s)", f"public.{name}")
        assert ("secret" in str(past), past["error_code"]) == (sees, RefreshFailed.code)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("SELECT FROM millstream.stream_tables")
