"""Notifications: their channel, and what is in them."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from millstream.postgres import notifications
from millstream.postgres.connection import Connection


def heard(conn: Connection, number: int) -> list[tuple[str, dict[str, Any]]]:  # Any: JSON
    """Return the next notifications: channel and payload."""
    return [
        (one.channel, json.loads(one.payload))
        for one in conn.notifies(timeout=60, stop_after=number)
    ]


def test_a_transition_names_the_source_and_both_modes(conn: Connection) -> None:
    conn.execute("LISTEN millstream_cdc_transition")
    notifications.transition(conn, "public.orders", "TRIGGER", "WAL", "slot")
    payload = {"source": "public.orders", "old_mode": "TRIGGER", "new_mode": "WAL", "slot": "slot"}
    assert heard(conn, 1) == [("millstream_cdc_transition", payload)]


def test_an_alert_has_its_kind_and_its_facts(conn: Connection) -> None:
    conn.execute("LISTEN millstream_alert")
    notifications.alert(conn, "slot_lag_warning", lag=5)
    assert heard(conn, 1) == [("millstream_alert", {"alert": "slot_lag_warning", "lag": 5})]


def test_the_texts_of_an_error_are_not_sent_to_whoever_listens(conn: Connection) -> None:
    """The leak: any role may LISTEN, and read the value that a row could not be computed with."""
    conn.execute("LISTEN millstream_alert")
    texts = dict.fromkeys(("message", "detail", "error"), "invalid input syntax: 'secret'")
    notifications.alert(conn, "refresh_failed", code="MS402", **texts)
    assert heard(conn, 1) == [("millstream_alert", {"alert": "refresh_failed", "code": "MS402"})]


def test_many_alerts_are_all_sent_in_order_and_the_log_counts_those_beyond_the_first(
    conn: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """The flood: a thousand stream tables that became stale at once wrote a thousand lines into the
    log.
    """
    conn.execute("LISTEN millstream_alert")
    notifications.alert_all(
        conn, "stale", [{"stream_table": f"t{number}"} for number in range(1000)]
    )
    sent = [payload["stream_table"] for _, payload in heard(conn, 1000)]
    assert sent == [f"t{number}" for number in range(1000)]
    events = [record.getMessage() for record in caplog.records]
    assert events == ["stale"] * notifications.LOGGED + ["stale: more of them"]


@pytest.mark.parametrize(
    "detail",
    [
        "x" * 100_000,
        "\u20ac" * 9_000,
        "\U0001f600" * 7_000,
        '"\\' * 9_000,
        ["y" * 300] * 500,
        {"a": {"b": ["z" * 5_000] * 20}},
    ],
)
def test_a_payload_that_is_too_long_is_shortened_and_stays_json(detail: object) -> None:
    text = notifications.encode(
        {"alert": "refresh_failed", "stream_table": "public.t", "detail": detail}
    )
    assert len(text.encode()) <= notifications.LONGEST
    payload = json.loads(text)
    assert (payload["alert"], payload["stream_table"], payload["shortened"]) == (
        "refresh_failed",
        "public.t",
        True,
    )
    assert payload["detail"]


def test_a_payload_of_the_greatest_length_is_sent_as_it_is_by_a_real_server(
    conn: Connection,
) -> None:
    conn.execute("LISTEN millstream_alert")
    facts = {"alert": "stale", "reason": ""}
    facts["reason"] = "x" * (notifications.LONGEST - len(json.dumps(facts)))
    notifications.alert(conn, "stale", reason=facts["reason"])
    notifications.alert(conn, "stale", reason=facts["reason"] + "\u20ac")
    sent = [json.loads(one.payload) for one in conn.notifies(timeout=60, stop_after=2)]
    assert sent[0] == facts
    assert (sent[1]["shortened"], len(sent[1]["reason"])) == (True, 2000)


def test_an_alert_is_part_of_the_transaction_that_it_is_about(conn: Connection) -> None:
    conn.execute("LISTEN millstream_alert")
    with conn.transaction(force_rollback=True):
        notifications.alert(conn, "auto_suspended", stream_table="public.t")
    notifications.alert(conn, "resumed", stream_table="public.t")
    assert [
        json.loads(one.payload)["alert"] for one in conn.notifies(timeout=60, stop_after=1)
    ] == ["resumed"]


def test_every_kind_of_alert_is_a_name() -> None:
    assert all(kind.isidentifier() and kind.islower() for kind in get_args(notifications.Alert))
