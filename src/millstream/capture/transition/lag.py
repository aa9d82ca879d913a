"""How far the slot lags behind, and the alerts about that.

    slot_lag_warning     more than the setting of that name: the server retains WAL for us
    slot_lag_critical    more than that setting: the sources return to triggers before the server drops the slot

Each is sent once when the lag rises above its setting, and again only after the lag has been below
half of it: a lag that swings around the setting is one alert.

>>> watch = LagWatch()
>>> settings = Settings(slot_lag_warning=100, slot_lag_critical=1000)
>>> [watch.look(lag, settings) for lag in (50, 150, 90, 150, 40, 150, 2000, 150, 2000)]
[[], ['slot_lag_warning'], [], [], [], ['slot_lag_warning'], ['slot_lag_critical'], [], ['slot_lag_critical']]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from millstream.postgres import notifications
from millstream.postgres.connection import Connection
from millstream.settings import Settings

LagAlert = Literal["slot_lag_warning", "slot_lag_critical"]
KINDS: tuple[LagAlert, ...] = get_args(LagAlert)


@dataclass
class LagWatch:
    """Which alerts were sent and not taken back."""

    sent: frozenset[LagAlert] = frozenset()

    def look(self, lag: int, settings: Settings) -> list[LagAlert]:
        """Return the alerts that are to be sent for a lag of so many bytes."""
        limits = {kind: getattr(settings, kind) / (2 if kind in self.sent else 1) for kind in KINDS}
        exceeded = [kind for kind in KINDS if lag > limits[kind]]
        new = [kind for kind in exceeded if kind not in self.sent]
        self.sent = frozenset(exceeded)
        return new


def check(conn: Connection, settings: Settings, watch: LagWatch) -> int:
    """Return the slot's lag in bytes, 0 where there is no slot; send an alert if it has risen above
    a setting.

    Called by every step of the transitions (`transitions.advance`), once a second at most, while a
    source uses WAL.
    """
    query = (
        "SELECT slot_name, coalesce(confirmed_lag_bytes, 0), held_by FROM millstream.slot_health()"
    )
    row = conn.execute(query).fetchone()
    slot, lag, held_by = row or (None, 0, None)
    for kind in watch.look(lag, settings):
        limit = getattr(settings, kind)
        notifications.alert(
            conn, kind, slot=slot, lag_bytes=lag, limit_bytes=limit, held_by=held_by
        )
    return int(lag)
