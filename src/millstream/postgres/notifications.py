"""Tell whoever listens: notifications with JSON in them.

LISTEN millstream_cdc_transition     the capture mode of a source has changed
LISTEN millstream_alert              something wants looking at
"""

from __future__ import annotations

import json
from typing import Literal

from millstream.observe import log
from millstream.postgres.connection import Connection

Alert = Literal["slot_lag_warning", "cdc_transition_complete", "cdc_transition_failed", "reinitialize_needed"]


def transition(conn: Connection, source: str, old: str, new: str, slot: str) -> None:
    """Notify that a source has another capture mode from now on."""
    _notify(conn, "millstream_cdc_transition", {"source": source, "old_mode": old, "new_mode": new, "slot": slot})


def alert(conn: Connection, kind: Alert, **facts: object) -> None:
    """Something wants looking at, or is done."""
    (log.info if kind == "cdc_transition_complete" else log.warning)(kind.replace("_", " "), **facts)
    _notify(conn, "millstream_alert", {"alert": kind, **facts})


def _notify(conn: Connection, channel: str, payload: dict[str, object]) -> None:
    conn.execute("SELECT pg_notify(%s, %s)", (channel, json.dumps(payload, default=str)))
