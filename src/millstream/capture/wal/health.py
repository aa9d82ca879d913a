"""State of a running pipeline, for callers that wait for a position and for its own heartbeat."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Health:
    """State of a running pipeline."""

    durable: int = 0
    """Every change before this position is durable in the buffers."""
    received: int = 0
    """Position of the last keepalive, or of the end of the last transaction."""
    life_at: float = field(default_factory=time.monotonic)
    """When anything last passed through the pipeline, with rows or without."""
    written: int = 0
    markers: int = 0
    """Positions that were stored without any change."""
    reconnects: int = 0
    reason: str = ""
    """Why the connection was last interrupted."""
