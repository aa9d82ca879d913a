"""The functions and procedures for users: what each does, who may call it, the test that shows it."""

from __future__ import annotations

from dataclasses import dataclass

REQUESTS = "tests/catalog/test_requests.py"
_LIFE = "tests/service/requests/test_answer.py::test_the_life_of_a_stream_table_by_requests"
_REPLACED = (
    "tests/service/requests/test_answer.py::test_a_replacement_creates_alters_or_leaves_alone"
)
_OWNERS = "operators; owners of the stream table"
_ALL_RIGHTS = "the owner of the stream table"


@dataclass(frozen=True)
class SqlFunction:
    """A function or a procedure that users call."""

    name: str
    arguments: str
    meaning: str
    allowed: str
    test: str
    """A file and the name of a test in it."""


_NEW = (
    "name, query, schedule => '1m', refresh_mode => 'AUTO', initialize => true, cdc_mode => NULL, settings => NULL, "
    "assume_immutable => NULL"
)

SQL_FUNCTIONS = (
    SqlFunction(
        "create_stream_table",
        _NEW,
        "Create a stream table that belongs to the calling role.",
        "operators",
        _LIFE,
    ),
    SqlFunction(
        "create_or_replace_stream_table",
        _NEW,
        "Create it, alter it, or do nothing.",
        "operators",
        _REPLACED,
    ),
    SqlFunction(
        "alter_stream_table",
        "name, schedule => NULL, refresh_mode => NULL, status => NULL, query => NULL, cdc_mode => NULL, "
        "settings => NULL",
        "Change the given properties. Status ACTIVE resumes it, SUSPENDED stops it.",
        f"{_OWNERS}; with `query` or `settings` {_ALL_RIGHTS} only",
        _LIFE,
    ),
    SqlFunction(
        "drop_stream_table",
        "name, cascade => false",
        "Drop it; with `cascade` also the objects that depend on it.",
        _ALL_RIGHTS,
        _LIFE,
    ),
    SqlFunction("refresh_stream_table", "name", "Refresh it now.", _OWNERS, _LIFE),
    SqlFunction(
        "verify_stream_table", "name", "Refresh it and compare it with its query.", _OWNERS, _LIFE
    ),
    SqlFunction(
        "validate_query",
        "query",
        "Show how a stream table over it would be maintained, or why it is refused.",
        "operators",
        _LIFE,
    ),
    SqlFunction(
        "explain_query",
        "query",
        "Show the blocks by which it would be maintained.",
        "operators",
        _LIFE,
    ),
    SqlFunction(
        "wait_for",
        "request, timeout => '1 minute'",
        "Procedure. Wait until a request is done; returns the answer as `result`, raises the error if it failed.",
        "operators and owners",
        f"{REQUESTS}::test_waiting_raises_the_services_error_as_its_own",
    ),
    SqlFunction(
        "wait_visible",
        "name, timeout => '1 minute', seen => pg_current_snapshot()",
        "Procedure. Wait until the stream table, and those that it reads, have everything that the caller sees now.",
        "readers, operators and owners",
        "tests/catalog/test_visibility.py::test_it_is_visible_only_when_everything_that_was_seen_is_there",
    ),
    SqlFunction(
        "service_is_running",
        "",
        "True if a service works on this database.",
        "operators and owners",
        f"{REQUESTS}::test_a_request_wakes_the_service_and_warns_where_none_runs",
    ),
)
