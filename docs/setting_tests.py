"""The settings, each with the test that shows what it does.

`docs/generate.py` prints them; `tests/test_docs.py` checks that every setting is here, and that the
tests exist.
"""

from __future__ import annotations

_LEADER = "tests/service/run/test_leader.py"
_TRANSITIONS = "tests/capture/transition/test_transitions.py"
_HEARTBEAT = "tests/capture/wal/test_heartbeat.py"
_LOST = "test_the_connection_is_lost_if_neither_the_message_nor_anything_else_came_in_time"
_SPARK = "tests/service/test_app.py::test_spark_is_started_with_the_settings"

SHOWN_BY = {
    "enabled": f"{_LEADER}::test_settings_are_read_while_it_works_and_off_means_off",
    "scheduler_interval": f"{_LEADER}::test_what_is_due_is_looked_for_as_often_as_the_setting_says",
    "max_concurrent_refreshes": f"{_LEADER}::test_a_service_that_cannot_keep_all_targets_says_so_and_lets_none_starve",
    "shutdown_timeout": f"{_LEADER}::test_a_refresh_that_takes_longer_than_the_shutdown_may_is_rolled_back",
    "verify_budget": (
        "tests/service/run/test_continuous_verification.py::test_the_service_verifies_in_idle_time_within_its_budget"
    ),
    "history_retention": (
        "tests/service/run/test_upkeep.py::test_what_a_dead_process_left_is_settled_at_once_and_old_entries_go_in_parts"
    ),
    "block_source_ddl": (
        "tests/catalog/installation/test_event_triggers.py::"
        "test_changes_of_used_columns_are_refused_if_the_setting_says_so"
    ),
    "min_schedule": "tests/scheduler/test_cadence.py::test_a_schedule_shorter_than_the_setting_allows_is_refused",
    "differential_max_change_ratio": (
        "tests/refresh/test_decide.py::test_the_share_counts_above_a_few_thousand_changes"
    ),
    "max_lookup_rows": (
        "tests/refresh/reads/test_access_paths.py::test_a_table_without_statistics_is_looked_up_as_far_as_the_limit"
    ),
    "max_lock_share": "tests/scheduler/test_cuts.py::test_graphs_share_a_cut_as_far_as_the_share_of_the_locks_goes",
    "max_recursion_steps": "tests/refresh/test_recursion.py::test_an_endless_recursion_is_an_error_and_can_be_repaired",
    "cdc_mode": f"{_TRANSITIONS}::test_wal_alone_is_refused_where_it_cannot_be",
    "wal_transition_timeout": f"{_TRANSITIONS}::test_a_transition_that_takes_too_long_is_aborted_with_the_reason",
    "auto_replica_identity": f"{_TRANSITIONS}::test_a_replica_identity_set_by_millstream_is_restored",
    "slot_lag_warning": "tests/capture/transition/test_lag.py::test_a_lag_around_the_setting_is_one_alert",
    "slot_lag_critical": f"{_TRANSITIONS}::test_a_slot_that_lags_too_far_behind_is_given_up_in_time",
    "heartbeat_interval": f"{_HEARTBEAT}::test_the_next_message_is_sent_only_after_the_last_one_came_back",
    "heartbeat_timeout": f"{_HEARTBEAT}::{_LOST}",
    "max_consecutive_errors": (
        "tests/scheduler/test_outcomes.py::test_a_table_that_fails_is_held_back_then_suspended_until_it_is_made_active"
    ),
    "allow_direct_writes": (
        "tests/service/test_changes_from_outside.py::test_direct_writes_may_be_allowed_and_forbidden_again"
    ),
    "trusted_roles": (
        "tests/catalog/definitions/test_foreign_code.py::test_the_setting_trusted_roles_lets_code_of_a_role_run"
    ),
    "spark_master": _SPARK,
    "spark_driver_memory": _SPARK,
    "spark_conf": _SPARK,
}
