"""Send notifications with JSON payloads.

LISTEN millstream_cdc_transition     the capture mode of a source has changed
LISTEN millstream_alert              something needs attention, or is done

A notification is part of its transaction: listeners receive it after the commit, and never without
one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from millstream.observe import log
from millstream.postgres.connection import Connection

Alert = Literal[
    "stale",
    "falling_behind",
    "auto_suspended",
    "resumed",
    "reinitialize_needed",
    "slot_lag_warning",
    "slot_lag_critical",
    "changes_held_back",
    "cdc_transition_complete",
    "cdc_transition_failed",
    "refresh_completed",
    "refresh_failed",
    "verification_failed",
]

# A payload must be shorter than 8000 bytes.
LONGEST = 7999
# Texts of a payload that is longer are cut to the first of these lengths with which it fits; lists
# to a tenth as many.
_TEXTS = (2000, 1000, 500, 250, 100, 50, 20)
# News, not trouble. The log has an event of its own for each refresh.
_GOOD = ("cdc_transition_complete", "resumed", "refresh_completed")
_LOGGED_ELSEWHERE = ("refresh_completed", "refresh_failed")

# Not sent: any role that may connect may listen, and the text of an error may quote values of rows.
# The log has them, and the history, for roles with the rights of the stream table's owner.
_UNSENT = ("message", "detail", "error")

# Of alerts of one kind that are sent together, this many are logged, and then the number of the
# others.
LOGGED = 10

# A value as JSON has it, or one that is printed by str().
Fact: TypeAlias = object


def transition(conn: Connection, source: str, old: str, new: str, slot: str) -> None:
    """Notify that a source has another capture mode from now on."""
    _notify(
        conn,
        "millstream_cdc_transition",
        {"source": source, "old_mode": old, "new_mode": new, "slot": slot},
    )


def alert(conn: Connection, kind: Alert, **facts: Fact) -> None:
    """Notify that something needs attention, or is done; texts of errors are only in the log."""
    alert_all(conn, kind, [facts])


def alert_all(conn: Connection, kind: Alert, each: Sequence[Mapping[str, Fact]]) -> None:
    """Send many alerts of one kind in one statement; the log has the first of them and the number
    of the others.
    """
    if kind not in _LOGGED_ELSEWHERE:
        _log(kind, each)
    payloads = [encode({"alert": kind, **_sendable(facts)}) for facts in each]
    conn.execute(
        "SELECT pg_notify('millstream_alert', payload)"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS alerts (payload, number) ORDER BY number",
        (payloads,),
    )


def _log(kind: Alert, each: Sequence[Mapping[str, Fact]]) -> None:
    event = kind.replace("_", " ")
    write = log.info if kind in _GOOD else log.warning
    for facts in each[:LOGGED]:
        write(event, **facts)
    if len(each) > LOGGED:
        write(f"{event}: more of them", count=len(each) - LOGGED)


def _sendable(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    return {name: fact for name, fact in facts.items() if name not in _UNSENT}


def _notify(conn: Connection, channel: str, payload: Mapping[str, Fact]) -> None:
    conn.execute("SELECT pg_notify(%s, %s)", (channel, encode(payload)))


def encode(payload: Mapping[str, Fact]) -> str:
    """Return a payload as JSON that fits into a notification; texts and lists are shortened if it
    would not.

    A shortened payload says so:

    >>> shortened = json.loads(encode({"alert": "refresh_failed", "detail": "x" * 9000}))
    >>> shortened["shortened"], len(shortened["detail"])
    (True, 2000)
    """
    # ASCII, with escapes: it is the same in every encoding that a database may have.
    text = json.dumps(payload, default=str)
    for longest in _TEXTS:
        if len(text) <= LONGEST:
            break
        text = json.dumps({"shortened": True, **_shortened(json.loads(text), longest)})
    return text


# JSON values have many types.
def _shortened(value: Fact, longest: int) -> dict[str, Fact]:
    assert isinstance(value, dict)
    return {name: _cut(item, longest) for name, item in value.items()}


def _cut(value: Fact, longest: int) -> Fact:
    match value:
        case str():
            return value if len(value) <= longest else value[: longest - 1] + "\u2026"
        case list():
            return [_cut(item, longest) for item in value[: longest // 10]]
        case dict():
            return {name: _cut(item, longest) for name, item in value.items()}
        case _:
            return value
