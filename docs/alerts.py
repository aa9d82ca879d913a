"""The alerts on channel `millstream_alert`: when each is sent, with which facts, and the test that
shows it.

`docs/generate.py` prints the table; `tests/test_docs.py` checks that it has every alert and that
the tests exist.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.postgres.notifications import Alert


@dataclass(frozen=True)
class AlertPage:
    """One row of the table of alerts."""

    kind: Alert
    when: str
    facts: str
    """The names of its facts besides `alert`."""
    test: str
    """File and name of the test."""


ALERTS = (
    AlertPage(
        "stale",
        "A stream table is older than twice its schedule, and a second. Once for each episode. Not for suspended ones, "
        "nor for the time before the service started. `cause`: `failing`, `held back` by a stream table that it "
        "reads, or `behind`: the refresh waits for others or takes too long. Of many that are sent together the log "
        "has the first ten, and how many more there are.",
        "stream_table, age_seconds, target_seconds, data_timestamp, cause",
        "tests/scheduler/test_freshness.py::test_an_alert_has_age_target_and_cause",
    ),
    AlertPage(
        "falling_behind",
        "Stream tables are stale only because the service has too little time. Once for each episode.",
        "stream_tables (the worst ten), count, age_seconds, workers, workers_needed, hint",
        "tests/scheduler/test_freshness.py::test_falling_behind_names_the_latest_tables_and_the_number_of_workers_needed",
    ),
    AlertPage(
        "auto_suspended",
        "A stream table was suspended after `max_consecutive_errors` refreshes by schedule in a row had failed.",
        "stream_table, errors, code, hint",
        "tests/scheduler/test_outcomes.py::test_a_table_that_fails_is_held_back_then_suspended_until_it_is_made_active",
    ),
    AlertPage(
        "resumed",
        "A stream table that was SUSPENDED or in ERROR is ACTIVE again: by `alter`, or by a refresh that could be done "
        "again.",
        "stream_table, former_status, by",
        "tests/scheduler/test_outcomes.py::test_a_table_in_error_that_can_be_refreshed_again_sends_resumed",
    ),
    AlertPage(
        "reinitialize_needed",
        "The rows of a stream table cannot be brought up to date by changes and are computed in full; sent before that "
        "begins. `reason` is a [reason code](history.md#reason). With `source` in place of `stream_table`: changes of "
        "that source were lost, and its readers will be reinitialised.",
        "stream_table, reason, meaning; or source, reason",
        "tests/service/test_app.py::test_a_changed_definition_under_an_unplanned_stream_table_is_detected_and_reported",
    ),
    AlertPage(
        "refresh_completed",
        "A refresh has changed rows, or is the first good one after others had failed. Part of its transaction: "
        "whoever receives it sees the rows.",
        "stream_table, action, reason, initiated_by, rows_inserted, rows_updated, rows_deleted, data_timestamp, "
        "duration_ms, had_failed",
        "tests/scheduler/test_outcomes.py::test_only_a_refresh_that_changes_rows_sends_an_alert",
    ),
    AlertPage(
        "refresh_failed",
        "A refresh has failed, by schedule or by hand, or its process was killed. Not for one that was skipped or "
        "cancelled, and once for a stream table that waits in status ERROR.",
        "stream_table, action, initiated_by, code, hint, is_transient",
        "tests/scheduler/test_outcomes.py::test_a_table_that_fails_is_held_back_then_suspended_until_it_is_made_active",
    ),
    AlertPage(
        "slot_lag_warning",
        "The replication slot lags by more than `slot_lag_warning`. Once until the lag has been below half of that.",
        "slot, lag_bytes, limit_bytes, held_by",
        "tests/capture/transition/test_transitions.py::test_a_slot_that_lags_too_far_behind_is_given_up_in_time",
    ),
    AlertPage(
        "slot_lag_critical",
        "The replication slot lags by more than `slot_lag_critical`: sources return to triggers. Once until "
        "the lag has been below half of that.",
        "slot, lag_bytes, limit_bytes, held_by",
        "tests/capture/transition/test_transitions.py::test_a_slot_that_lags_too_far_behind_is_given_up_in_time",
    ),
    AlertPage(
        "changes_held_back",
        "The change buffer of a source is larger than `slot_lag_warning`, since a suspended or manual stream table has "
        "yet to read it. Once until it has been below half of that.",
        "source, buffer, size_bytes, rows, held_back_by, since, limit_bytes",
        "tests/service/run/test_held_back.py::test_a_large_buffer_is_reported_with_the_readers_that_it_waits_for",
    ),
    AlertPage(
        "cdc_transition_complete",
        "A source is captured from the WAL from now on.",
        "source",
        "tests/capture/transition/test_transitions.py::test_a_source_moves_to_wal_by_itself_and_sends_an_alert",
    ),
    AlertPage(
        "cdc_transition_failed",
        "The transition of a source to WAL was abandoned; it stays on triggers. With the reason.",
        "source, reason",
        "tests/capture/transition/test_transitions.py::test_a_transition_that_takes_too_long_is_aborted_with_the_reason",
    ),
    AlertPage(
        "verification_failed",
        "A stream table differs from its query. Some of the rows are in `millstream.verification_failures`.",
        "stream_table, missing, extra, data_timestamp, hint",
        "tests/service/run/test_continuous_verification.py::test_a_difference_is_recorded_with_evidence_and_an_alert",
    ),
)
