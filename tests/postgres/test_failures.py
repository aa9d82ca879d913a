"""Which errors pass by themselves: every SQLSTATE that psycopg knows is looked at."""

from __future__ import annotations

import errno

import psycopg
import pytest

from millstream.errors import Cancelled, Conflict, LockNotHad, RefreshFailed, ServerTrouble
from millstream.postgres import failures

# By class of codes, or code.
PASSES = ("08", "53", "57P", "58", "25P03", "25P04", "72000", "40001", "40P01", "55P03", "57014")


def test_every_sqlstate_of_the_driver_has_an_error() -> None:
    known = {
        code
        for one in vars(psycopg.errors).values()
        if isinstance(one, type)
        and issubclass(one, psycopg.Error)
        and (code := getattr(one, "sqlstate", None))
    }
    assert len(known) > 200
    for code in known:
        error = failures.failure("st", code, "why")
        assert error.retryable == code.startswith(PASSES), (code, error)
        assert error.facts.get("name") == "st" or isinstance(error, LockNotHad)
        assert error.hint


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("53300", ServerTrouble, "max_connections"),
        ("53100", ServerTrouble, "Make room"),
        ("53200", ServerTrouble, "max_locks_per_transaction"),
        ("40P01", Conflict, "tries again"),
        ("40001", Conflict, "tries again"),
        ("57014", Cancelled, "millstream refresh st"),
        ("57P01", ServerTrouble, "server runs"),
        ("25P04", ServerTrouble, "pooler"),
        ("22012", RefreshFailed, "same frontier"),
    ],
)
def test_missing_resources_are_reported_with_a_hint(
    code: str, kind: type[Exception], words: str
) -> None:
    error = failures.failure("st", code, "why")
    assert type(error) is kind
    assert words in error.hint
    assert error.detail == "why"


@pytest.mark.parametrize("words", failures.OF_SPARK)
def test_what_spark_says_of_a_machine_in_trouble_passes(words: str) -> None:
    error = failures.failure_in_spark(
        "st", f"Job aborted: java.io.IOException: {words} at x.y.z", "/scratch"
    )
    assert isinstance(error, ServerTrouble)
    assert ("/scratch" in error.hint) == ("disk" in error.message)


def test_an_error_code_of_a_task_means_the_same_as_in_the_driver() -> None:
    text = "PythonException: RuntimeError: [SQLSTATE 53300] FATAL: sorry\n\nDriver stacktrace: ..."
    error = failures.failure_in_spark("st", text, "/tmp")
    assert isinstance(error, ServerTrouble)
    assert (error.sqlstate, error.detail) == ("53300", "FATAL: sorry")
    assert failures.failure_in_spark("st", "[DIVIDE_BY_ZERO] ...", "/tmp") is None


def test_a_disk_of_this_machine_that_is_full_is_named() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/scratch/x")
    assert "/scratch/x" in failures.failure_here("st", full).hint
    assert failures.failure_here("st", MemoryError()).retryable
    assert failures.failure_here("st", ConnectionResetError()).retryable
    assert not failures.failure_here("st", KeyError("x")).retryable
