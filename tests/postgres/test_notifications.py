"""Notifications: their channel, and what is in them."""

from __future__ import annotations

import json
from typing import Any, cast

from millstream.postgres import notifications
from millstream.postgres.connection import Connection


class Recorder:
    """A connection that records the parameters of what it executes."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []  # Any: JSON

    def execute(self, query: str, parameters: tuple[str, str]) -> None:
        assert query == "SELECT pg_notify(%s, %s)"
        self.sent.append((parameters[0], json.loads(parameters[1])))


def test_a_transition_names_the_source_and_both_modes() -> None:
    recorder = Recorder()
    notifications.transition(cast(Connection, recorder), "public.orders", "TRIGGER", "WAL", "slot")
    payload = {"source": "public.orders", "old_mode": "TRIGGER", "new_mode": "WAL", "slot": "slot"}
    assert recorder.sent == [("millstream_cdc_transition", payload)]


def test_an_alert_has_its_kind_and_its_facts() -> None:
    recorder = Recorder()
    notifications.alert(cast(Connection, recorder), "slot_lag_warning", lag=5)
    assert recorder.sent == [("millstream_alert", {"alert": "slot_lag_warning", "lag": 5})]
