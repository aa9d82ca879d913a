"""The functions and views for monitoring: what each shows, in which columns, and the test that
shows it.

`docs/generate.py` prints the page. `tests/test_docs.py` checks that the tests exist,
`tests/catalog/test_monitoring.py` that the database has these functions, views and columns and no
others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_TESTS = "tests/catalog/test_monitoring.py"
_WAL = "tests/capture/wal/test_health.py"


@dataclass(frozen=True)
class Monitor:
    """A function or a view."""

    name: str
    call: str
    """How it is called, or selected from."""
    meaning: str
    columns: tuple[str, ...]
    """Empty where it returns one value."""
    test: str
    """A file and the name of a test in it."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Columns that mean something else here than elsewhere."""

    def column_meaning(self, column: str) -> str:
        """Return what a column holds."""
        return self.own.get(column) or COLUMNS[column]


COLUMNS = {
    "action": "What it did: NO_DATA, DIFFERENTIAL, FULL, REINITIALIZE or SKIP.",
    "active": "True if somebody reads from the slot.",
    "alert": "What is wrong with the capture; NULL if nothing is. A lag above `slot_lag_critical` is.",
    "alive": "True if the session of the process exists.",
    "block_name": "The block.",
    "buffer": "The table of its changes.",
    "cdc_mode": "How it is captured: TRIGGER, TRANSITIONING or WAL.",
    "check_name": "What was checked.",
    "columns": "The columns of the source that the stream table reads.",
    "confirmed_lag_bytes": "WAL that is not yet confirmed: it waits for Millstream.",
    "confirmed_lag_seconds": "Since when the reader is behind, at most; 0 if it is not.",
    "confirmed_lsn": "Everything before it is confirmed to the server.",
    "consecutive_errors": "Consecutive failures with errors that are not transient.",
    "data_timestamp": "Everything committed before it is in the rows: the time of its cut or of an older upstream.",
    "decoder_status": "STREAMING, STOPPED or LOST; NULL where triggers capture.",
    "detail": "What was found.",
    "differential": "How many of them read changes only.",
    "duration_ms": "How long it took.",
    "durable_lsn": "Everything before it is in the change buffers.",
    "epoch": "The number of times that a process became leader; only for the leader.",
    "error": "Its text; NULL for roles without the rights of the owner.",
    "error_code": "The [code](errors.md) of the error.",
    "failed": "How many failed.",
    "finished_at": "When it ended.",
    "full": "How many of them computed all rows.",
    "heartbeat_at": "When the last heartbeat that has come back was sent.",
    "held_back_by": "Stream tables that it reads, to any depth, whose rows are older than its last refresh.",
    "held_by": "The transaction that has the server retain WAL, if it is not Millstream.",
    "hint": "What to do.",
    "host": "Where the process runs.",
    "id": "Its id.",
    "initiated_by": "SCHEDULER, MANUAL or INITIAL.",
    "interrupted_at": "When the reader was last interrupted; known when it has connected again.",
    "interrupted_by": "Why it was interrupted.",
    "invalidation_reason": "Why the server has invalidated the slot.",
    "is_populated": "True if it was filled.",
    "is_stale": "True if its rows are older than twice its schedule (by cron: the time between two firings).",
    "last_action": "What its last refresh did.",
    "last_error": "Text of the last error; NULL for roles without the rights of the owner.",
    "last_error_code": "The [code](errors.md) of the last error that does not pass by itself.",
    "last_reason": "Why, as a [reason code](history.md).",
    "last_refresh_at": "When it was last refreshed.",
    "last_started_at": "When the last of them began.",
    "last_tick_at": "When it last recorded that it had work.",
    "last_transient_error_code": "The [code](errors.md) of the last error that passes by itself.",
    "last_verified_at": "When it was last compared with its query.",
    "last_verified_ok": "True if that comparison found no difference.",
    "leads_since": "Since when it leads.",
    "markers": "Positions without any change that were stored.",
    "max_ms": "How long the longest took.",
    "mean_ms": "How long one took on average.",
    "name": "The name of the stream table.",
    "needs_reinit": "True if the next refresh computes all rows anew, as far as the catalog tells.",
    "next_try_at": "The time of the next try after a failed refresh.",
    "no_data": "How many of them found no change.",
    "no_data_refreshes": "Refreshes by schedule that found no change.",
    "owner": "The role that owns it.",
    "p95_ms": "Ninety-five of a hundred took no longer.",
    "part": "What is told of: stream table, query, block, source, upstream or last refresh.",
    "pending_cutovers": "Cutovers that some reader has not passed.",
    "phases": "How long each phase took, in milliseconds.",
    "pid": "Its process id.",
    "plan": "The plan of the block; NULL for roles without the rights of the owner.",
    "position": "Its place in the chain.",
    "query": "As it was given; NULL for roles without the rights of the owner.",
    "reason": "Why it is captured so, where that needs saying.",
    "received_lsn": "Up to where WAL had been received when the cursor last moved.",
    "reconnects": "How often the reader was interrupted.",
    "refresh_mode": "AUTO, DIFFERENTIAL or FULL.",
    "refreshes": "How many were completed.",
    "reinitialize": "How many of them started over.",
    "relid": "The oid of its table.",
    "restart_lag_bytes": "WAL that the server retains for the slot.",
    "role": "LEADER or STANDBY.",
    "rows": "How many rows it has; an estimate of PostgreSQL.",
    "rows_deleted": "Rows deleted.",
    "rows_inserted": "Rows inserted.",
    "rows_read": "Rows read from sources and states.",
    "rows_updated": "Rows updated.",
    "safe_wal_size": "How much WAL can be written before the server invalidates the slot.",
    "schedule": "Its schedule.",
    "schema_name": "The schema of the stream table.",
    "silent": "How long its session has been idle.",
    "since": "Since when.",
    "size_bytes": "Its size on disk, with indexes.",
    "skipped": "How many were skipped.",
    "slot_lag_bytes": "WAL of the slot that is not yet confirmed.",
    "slot_lag_critical": "The setting, as the database has it.",
    "slot_lag_seconds": "Since when the reader is behind, at most; 0 if it is not.",
    "slot_lag_warning": "The setting, as the database has it.",
    "slot_name": "The replication slot.",
    "source": "The table that changes are captured from.",
    "source_relid": "Its oid.",
    "spark_jobs": "How many jobs Spark ran for it.",
    "spilled_bytes": "What the server's decoder has written to disk.",
    "staleness": "The age of the rows: zero while no change waits.",
    "started_at": "When it began.",
    "state_bytes": "The size of its state.",
    "state_table": "The table in schema `millstream_state` that keeps its state.",
    "status": "INITIALIZING, ACTIVE, SUSPENDED or ERROR.",
    "stream_table": "Its schema and name, quoted for use in SQL.",
    "stream_table_id": "The id of the stream table.",
    "transient_errors": "Consecutive failures with transient errors.",
    "trouble": "What is wrong with the slot.",
    "upstreams": "The stream tables that it reads.",
    "version": "The version of Millstream.",
    "wal_status": "As in `pg_replication_slots`.",
}

_PAST = {
    "status": "RUNNING, COMPLETED, FAILED, SKIPPED or CANCELLED.",
    "reason": "Why, as a [reason code](history.md).",
}
_OF_REFRESH = (
    "duration_ms", "data_timestamp", "rows_read", "rows_inserted", "rows_updated", "rows_deleted", "spark_jobs",
    "phases", "error_code", "error",
)  # fmt: skip

MONITORS = (
    Monitor(
        "status", "SELECT * FROM millstream.status()", "One row for each stream table, ordered by name.",
        (
            "stream_table", "status", "schedule", "refresh_mode", "data_timestamp", "staleness", "is_stale",
            "held_back_by", "last_refresh_at", "last_action", "last_reason", "rows", "consecutive_errors",
            "transient_errors", "error_code", "error", "next_try_at", "last_verified_at", "last_verified_ok",
        ),
        f"{_TESTS}::test_status_shows_how_old_each_stream_table_is_and_what_its_last_refresh_did",
    ),
    Monitor(
        "health_check", "SELECT * FROM millstream.health_check()",
        "Checks of the service, stream tables, sources, slot, change buffers and requests. A stream table or a source "
        "has a row of its own where there is something to report.",
        ("check_name", "status", "detail", "hint"),
        f"{_TESTS}::test_each_problem_of_a_stream_table_is_reported_with_a_hint",
        {"status": "OK, WARN or ERROR."},
    ),
    Monitor(
        "service_status", "SELECT * FROM millstream.service_status()", "The processes of `millstream run`.",
        (
            "role", "host", "pid", "version", "started_at", "last_tick_at", "alive", "silent", "epoch", "leads_since",
        ),
        f"{_TESTS}::test_a_missing_service_is_reported_if_a_stream_table_has_a_schedule",
    ),
    Monitor(
        "get_staleness", "SELECT millstream.get_staleness('totals')",
        "The age of the rows of a stream table: zero while no change waits, NULL before it is filled.", (),
        f"{_TESTS}::test_a_stream_table_for_which_no_change_waits_is_as_of_now",
    ),
    Monitor(
        "get_refresh_history", "SELECT * FROM millstream.get_refresh_history('totals', 20)",
        "The last refreshes of a stream table, newest first.",
        ("id", "action", "reason", "status", "initiated_by", "started_at", "finished_at", *_OF_REFRESH),
        f"{_TESTS}::test_the_history_of_a_stream_table_comes_newest_first", _PAST,
    ),
    Monitor(
        "st_refresh_stats", "SELECT * FROM millstream.st_refresh_stats('1 day')",
        "The refreshes of each stream table in the last day, or another period, counted and timed.",
        (
            "stream_table", "refreshes", "failed", "skipped", "no_data", "differential", "full", "reinitialize",
            "rows_read", "rows_inserted", "rows_updated", "rows_deleted", "mean_ms", "p95_ms", "max_ms",
            "last_started_at",
        ),
        f"{_TESTS}::test_refreshes_are_counted_and_timed",
    ),
    Monitor(
        "explain_st", "SELECT * FROM millstream.explain_st('totals')",
        "How a stream table is maintained, from the catalog.", ("part", "name", "detail"),
        f"{_TESTS}::test_a_stream_table_is_explained_from_the_catalog",
        {"name": "Its name.", "detail": "Queries and plans are shown to roles with the rights of the owner."},
    ),
    Monitor(
        "check_cdc_health", "SELECT * FROM millstream.check_cdc_health()", "How each source is captured.",
        (
            "source", "cdc_mode", "since", "slot_name", "confirmed_lsn", "slot_lag_bytes", "slot_lag_seconds",
            "slot_lag_warning", "slot_lag_critical", "decoder_status", "pending_cutovers", "reason", "alert",
        ),
        f"{_WAL}::test_a_lagging_slot_is_reported_with_bytes_seconds_and_the_settings",
    ),
    Monitor(
        "slot_health", "SELECT * FROM millstream.slot_health()",
        "The replication slot of this database, and how its reader fares. What the reader knows is written with the "
        "changes that it stores: never by one that is idle.",
        (
            "slot_name", "active", "wal_status", "invalidation_reason", "confirmed_lsn", "confirmed_lag_bytes",
            "confirmed_lag_seconds", "restart_lag_bytes", "safe_wal_size", "spilled_bytes", "held_by", "received_lsn",
            "durable_lsn", "markers", "heartbeat_at", "reconnects", "interrupted_at", "interrupted_by",
            "decoder_status", "trouble",
        ),
        f"{_WAL}::test_positions_markers_and_heartbeats_are_in_the_catalog",
    ),
    Monitor(
        "held_back_buffers", "SELECT * FROM millstream.held_back_buffers()",
        "Change buffers that cannot be pruned, because a suspended or manual stream table has not read them.",
        ("source", "buffer", "size_bytes", "rows", "held_back_by", "since"),
        f"{_TESTS}::test_a_buffer_waits_for_a_reader_that_is_not_refreshed_by_itself",
        {"held_back_by": "The stream tables that it waits for.", "since": "When they were last refreshed."},
    ),
    Monitor(
        "stream_tables_info", "SELECT * FROM millstream.stream_tables_info",
        "View. All properties of each stream table.",
        (
            "schema_name", "name", "owner", "status", "refresh_mode", "schedule", "cdc_mode", "is_populated",
            "data_timestamp", "staleness", "last_refresh_at", "last_action", "last_reason", "consecutive_errors",
            "last_error_code", "id", "is_stale", "held_back_by", "transient_errors", "last_transient_error_code",
            "last_error", "next_try_at", "no_data_refreshes", "last_verified_at", "last_verified_ok", "rows",
            "size_bytes", "needs_reinit", "upstreams", "query", "settings",
        ),
        f"{_TESTS}::test_after_a_truncation_or_a_gap_the_next_refresh_reinitialises",
        {
            "cdc_mode": "How it wants its sources captured: trigger, auto or wal; NULL: as the setting says.",
            "settings": "The session settings that its query is evaluated with, as far as its result depends on them.",
        },
    ),
    Monitor(
        "pg_stat_stream_tables", "SELECT * FROM millstream.pg_stat_stream_tables",
        "View. How each source of each stream table is captured.",
        (
            "relid", "schema_name", "name", "source_relid", "source", "columns", "cdc_mode", "since", "slot_name",
            "slot_lag_bytes", "slot_lag_seconds", "decoder_status", "pending_cutovers", "reason", "alert",
        ),
        f"{_TESTS}::test_each_source_of_each_stream_table_is_shown_with_its_capture",
    ),
    Monitor(
        "refresh_history_info", "SELECT * FROM millstream.refresh_history_info", "View. All refreshes.",
        (
            "id", "stream_table_id", "schema_name", "name", "action", "reason", "status", "initiated_by", "started_at",
            "finished_at", *_OF_REFRESH,
        ),
        f"{_TESTS}::test_the_text_of_an_error_is_for_roles_with_the_rights_of_the_owner", _PAST,
    ),
    Monitor(
        "blocks_info", "SELECT * FROM millstream.blocks_info", "View. The blocks that each query was split into.",
        (
            "stream_table_id", "schema_name", "name", "position", "block_name", "state_table", "state_bytes", "plan",
        ),
        f"{_TESTS}::test_the_text_of_an_error_is_for_roles_with_the_rights_of_the_owner",
    ),
)  # fmt: skip

HELPERS = ("stream_table_id", "needs_reinit", "staleness_of")
"""Functions that the others call, with the rights of whoever asks."""
