"""The words of the history; among them the reason codes, which say why a refresh did what it did.

A refresh that failed, or was skipped or cancelled, has the code of its error instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.catalog.history import Action, Status

STATUSES: Mapping[Status, str] = {
    "RUNNING": "It is at work.",
    "COMPLETED": "It was committed.",
    "FAILED": "It has applied nothing; `error` says why.",
    "SKIPPED": "Another process, a lock or another stream table was in the way. It is entered once.",
    "CANCELLED": "Somebody has cancelled it: Ctrl-C, `pg_cancel_backend`, in Spark.",
}

ACTIONS: Mapping[Action, str] = {
    "NO_DATA": "Nothing was to be done: the frontier moves.",
    "DIFFERENTIAL": "What has changed was computed from the changes of the sources.",
    "FULL": "The query was computed in full; the difference was applied.",
    "REINITIALIZE": "As FULL, because the stored rows could not be brought up to date by changes.",
    "SKIP": "Nothing was attempted.",
}

REASONS: Mapping[str, str] = {
    "NO_CHANGE": "Nothing that it reads has changed.",
    "CHANGED": "Rows that it reads have changed.",
    "CLOCK": "Time has passed: rows have crossed a condition on the current time.",
    "INITIAL": "It was filled for the first time.",
    "REQUESTED": "A full refresh was asked for.",
    "MODE_FULL": "Rows that it reads have changed, and its refresh mode is FULL.",
    "CHANGE_RATIO": "More of a source has changed than `differential_max_change_ratio`, in mode AUTO.",
    "SOURCE_TRUNCATED": "A source was emptied by TRUNCATE.",
    "LOG_LOST": "The WAL after the last refresh cannot be read any more: its slot was dropped, invalidated or has lost "
    "its place.",
    "CAPTURE_GAP": "Changes of a source were not captured: its triggers were dropped or disabled, it was not "
    "published for a while, or the WAL had too little of the old rows.",
    "SOURCE_CHANGED": "Columns of a source were altered while its changes were captured.",
    "PARTITIONS_CHANGED": "A partition or child of a source was attached or detached.",
    "SOURCE_REWRITTEN": "The rows of a source were written anew: VACUUM FULL, CLUSTER, ALTER TABLE.",
    "SOURCE_REPLACED": "Another table has the name of a source.",
    "VIEW_REPLACED": "A view that it reads was replaced.",
    "FUNCTION_REPLACED": "A function that its query calls was replaced.",
    "TYPE_CHANGED": "A type that it uses was altered: labels renamed or added, constraints of a domain.",
    "TABLE_ALTERED": "The table of the stream table itself was altered.",
    "TRIGGERS_CHANGED": "Triggers on the table of the stream table, which may change rows, have come, gone or changed.",
    "UNGUARDED": "Its guard against direct writes was missing: others may have written rows.",
    "QUERY_CHANGED": "It was given another query.",
    "PLANNED_ANEW": "Its query is maintained in another way than before, by another version or for another definition.",
}
"""By code: what it means."""
