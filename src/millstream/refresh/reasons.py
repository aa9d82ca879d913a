"""The terms of the history: statuses, actions, and reason codes, which say why a refresh did what
it did.

A refresh that failed, or was skipped or cancelled, has the code of its error instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.catalog.history import Action, Status

STATUSES: Mapping[Status, str] = {
    "RUNNING": "The refresh is running.",
    "COMPLETED": "It was committed.",
    "FAILED": "Nothing was applied; `error` has the reason.",
    "SKIPPED": "Another process, a lock or another stream table prevented it. Consecutive ones have one entry.",
    "CANCELLED": "It was cancelled: by Ctrl-C, `pg_cancel_backend`, or in Spark.",
}

ACTIONS: Mapping[Action, str] = {
    "NO_DATA": "There was nothing to do; only the frontier moved.",
    "DIFFERENTIAL": "What has changed was computed from the changes of the sources.",
    "FULL": "The query was computed in full; the difference was applied.",
    "REINITIALIZE": "Like FULL, because changes alone could not bring the stored rows up to date.",
    "SKIP": "Nothing was attempted.",
}

REASONS: Mapping[str, str] = {
    "NO_CHANGE": "Nothing that it reads has changed.",
    "CHANGED": "Rows that it reads have changed.",
    "CLOCK": "Rows have crossed a condition on the current time.",
    "INITIAL": "It was filled for the first time.",
    "REQUESTED": "A full refresh was requested.",
    "MODE_FULL": "Rows that it reads have changed, and its refresh mode is FULL.",
    "CHANGE_RATIO": "More of a source has changed than `differential_max_change_ratio`, in mode AUTO.",
    "SOURCE_TRUNCATED": "A source was emptied by TRUNCATE.",
    "LOG_LOST": "The WAL after the last refresh cannot be read any more: its slot was dropped, invalidated or moved.",
    "CAPTURE_GAP": "Changes of a source were not captured: its triggers were dropped or disabled, it was not "
    "published for a while, or WAL did not contain its old rows in full.",
    "SOURCE_CHANGED": "Columns of a source were altered while its changes were captured.",
    "PARTITIONS_CHANGED": "A partition or child of a source was attached or detached.",
    "SOURCE_REWRITTEN": "The table of a source was rewritten: VACUUM FULL, CLUSTER, ALTER TABLE.",
    "SOURCE_REPLACED": "A source was replaced by another table of the same name.",
    "VIEW_REPLACED": "A view that it reads was replaced.",
    "FUNCTION_REPLACED": "A function that its query calls was replaced.",
    "TYPE_CHANGED": "A type that it uses was altered: labels renamed or added, constraints of a domain.",
    "TABLE_ALTERED": "The table of the stream table itself was altered.",
    "TRIGGERS_CHANGED": "Triggers on the table of the stream table, which may change rows, were created or altered.",
    "UNGUARDED": "Its trigger against direct writes was missing: others may have written rows.",
    "QUERY_CHANGED": "It was given another query.",
    "PLANNED_ANEW": "Its plan differs from before, because of another version of Millstream or a changed definition.",
}
"""The meaning of each code."""
