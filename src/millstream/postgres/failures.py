"""Classify errors of PostgreSQL, of Spark and of this machine: which are transient?

    TRANSIENT     the server lacks resources for the moment; retrying helps, and no stream table is suspended
    CONFLICTS     another transaction was in the way; retrying at once helps
    CANCELLED     the statement was cancelled
    all others    the statement itself is wrong; retrying does not help

Codes are matched by prefix, so a class of codes is one line. Errors of Spark's tasks have the
SQLSTATE in their text, because only the text reaches us; Spark's own errors are matched by their
words.
"""

from __future__ import annotations

import errno
import re
import tempfile
from typing import NamedTuple

import psycopg

from millstream.errors import (
    Cancelled,
    Conflict,
    LockNotHad,
    MillstreamError,
    NoRights,
    RefreshFailed,
    ServerError,
    ServerTrouble,
    of_code,
)


class TransientTrouble(NamedTuple):
    """What the server lacks, and what an administrator can do about it."""

    what: str
    remedy: str


_TIMEOUT = TransientTrouble(
    "a timeout ended the session",
    "Millstream sets the timeouts to 0 in each of its sessions; check those of a proxy or pooler in between.",
)
_DISCONNECTED = TransientTrouble(
    "the connection to the server was lost", "Check that the server runs."
)

# By the first characters of the code; the longest that fits counts.
TRANSIENT: dict[str, TransientTrouble] = {
    "08": _DISCONNECTED,
    "25P03": _TIMEOUT,
    "25P04": _TIMEOUT,
    "53": TransientTrouble("the server is short of resources", "See the server's log."),
    "53100": TransientTrouble("a disk of the server is full", "Make room on the server's disks."),
    "53200": TransientTrouble(
        "the server is out of memory",
        "If it happens again, raise max_locks_per_transaction, or lower work_mem.",
    ),
    "53300": TransientTrouble(
        "the server has no free connection",
        "End sessions (see pg_stat_activity), or raise max_connections.",
    ),
    "57P": TransientTrouble("the server ended the session", "Check that the server runs."),
    "57P05": _TIMEOUT,
    "58": TransientTrouble("the server cannot read or write its files", "See the server's log."),
    "72000": TransientTrouble(
        "the snapshot of the refresh is too old", "Set old_snapshot_threshold to -1."
    ),
}
# By what Spark and Java say; the first that is found counts.
OF_SPARK: dict[str, TransientTrouble] = {
    "No space left on device": TransientTrouble(
        "the disk of Spark's local directory is full", "Make room in spark.local.dir: {directory}."
    ),
    "Disk quota exceeded": TransientTrouble(
        "the disk of Spark's local directory is full", "Make room in spark.local.dir: {directory}."
    ),
    "TimeoutException": TransientTrouble(
        "a step of Spark took too long", "Check whether the machine is overloaded."
    ),
    "SocketTimeoutException": TransientTrouble(
        "a connection of Spark timed out", "Check whether the machine is overloaded."
    ),
    "ExecutorLostFailure": TransientTrouble("Spark lost an executor", "See Spark's log."),
    "FetchFailed": TransientTrouble("Spark lost the rows of a step", "See Spark's log."),
    "OutOfMemoryError": TransientTrouble(
        "Spark is out of memory", "Set spark_driver_memory higher."
    ),
    "Too many open files": TransientTrouble(
        "this machine has no free file descriptors", "Raise the limit (ulimit -n)."
    ),
}
# Two transactions each waited for the other, or one has changed what the other had read.
CONFLICTS = ("40001", "40P01")
NO_LOCK = "55P03"
CANCELLED = "57014"


def transient_trouble(sqlstate: str) -> TransientTrouble | None:
    """Return what passes by itself, None for a code that does not."""
    fitting = [prefix for prefix in TRANSIENT if sqlstate.startswith(prefix)]
    return TRANSIENT[max(fitting, key=len)] if fitting else None


def failure(name: str, sqlstate: str, reason: str) -> MillstreamError:
    """Return the error that a refresh of `name` has failed with."""
    if sqlstate in CONFLICTS:
        return Conflict.on(name, reason)
    if sqlstate == NO_LOCK:
        return LockNotHad.by_writer(name, reason)
    if sqlstate == CANCELLED:
        return Cancelled.by(name, reason)
    if trouble := transient_trouble(sqlstate):
        return ServerTrouble.of(name, trouble.what, reason, trouble.remedy, sqlstate=sqlstate)
    return RefreshFailed.because(name, reason)


def failure_from(name: str, error: psycopg.Error) -> MillstreamError:
    """Return the error that a refresh of `name` has failed with."""
    return failure(name, code_of(error), str(error).strip())


def code_of(error: psycopg.Error) -> str:
    """Return the SQLSTATE of an error; libpq's errors of lost connections have none."""
    return error.sqlstate or ("08006" if isinstance(error, psycopg.OperationalError) else "")


RIGHTS = "Ask an administrator for the privilege that is named; `millstream doctor` checks those on the database."


def translate_error(error: psycopg.Error) -> MillstreamError:
    """Return an error of the server, outside of a refresh, as one of ours, in the server's own
    words.
    """
    said, sqlstate = error.diag, code_of(error)
    message = said.message_primary or str(error).strip() or type(error).__name__
    detail = " ".join(filter(None, (said.message_detail, said.context)))
    if (own := of_code(sqlstate)) is not MillstreamError:
        # Raised by a function of ours. Where in it does not matter.
        return own(message, detail=said.message_detail or "", hint=said.message_hint or "")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return NoRights(message, detail=detail, hint=said.message_hint or RIGHTS, sqlstate=sqlstate)
    if sqlstate == CANCELLED:
        return Cancelled(
            message, detail=detail, hint="Nothing was done. Try again.", sqlstate=sqlstate
        )
    if trouble := transient_trouble(sqlstate):
        hint = said.message_hint or f"Nothing was done. Try again. {trouble.remedy}"
        return ServerTrouble(message, detail=detail, hint=hint, sqlstate=sqlstate)
    return ServerError.because(
        message, sqlstate=sqlstate, detail=detail, hint=said.message_hint or ""
    )


# -- of Spark and of this machine ------------------------------------------------------------

# What a connection to Java ends with, while Java runs on.
_LOST_JAVA = (
    "Py4JNetworkError",
    "ConnectionResetError",
    "BrokenPipeError",
    "ConnectionRefusedError",
    "EOFError",
)


def failure_in_spark(name: str, text: str, directory: str) -> MillstreamError | None:
    """Return the error of a refresh by what Spark says; None where it says nothing that passes by
    itself.
    """
    if found := sqlstate_in_text(text):
        return failure(name, *found)
    trouble = next((trouble for words, trouble in OF_SPARK.items() if words in text), None)
    if trouble is None:
        return None
    return ServerTrouble.of(
        name, trouble.what, _first_line(text), trouble.remedy.format(directory=directory)
    )


def failure_here(name: str, error: Exception) -> MillstreamError:
    """Return the error of a refresh that neither the server nor Spark has raised."""
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = f"Make room in {error.filename or tempfile.gettempdir()}."
        return ServerTrouble.of(name, "a disk of this machine is full", reason, remedy)
    if isinstance(error, MemoryError):
        return ServerTrouble.of(name, "this machine is out of memory", reason, "")
    if type(error).__name__ in _LOST_JAVA:
        return ServerTrouble.of(name, "a connection to Java was lost", reason, "")
    if isinstance(error, OSError):
        return ServerTrouble.of(name, "the operating system refused an operation", reason, "")
    return RefreshFailed.because(name, reason)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:500]


# -- in the text of an error -----------------------------------------------------------------

_MARK = re.compile(r"\[SQLSTATE ([0-9A-Z]{5})\] ([^\n]*)")


def sqlstate_in_text(text: str) -> tuple[str, str] | None:
    """Return the SQLSTATE and the message that a task has put into the text of its error.

    >>> sqlstate_in_text("job aborted: [SQLSTATE 53300] sorry, too many clients already")
    ('53300', 'sorry, too many clients already')
    """
    match = _MARK.search(text)
    return (match[1], match[2]) if match else None
