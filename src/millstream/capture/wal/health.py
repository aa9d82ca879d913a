"""What is known of a running pipeline, for those who ask and for its own heartbeat."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Health:
    """What is known of a running pipeline."""

    durable: int = 0
    """All before this is in the buffers."""
    received: int = 0
    """The last keepalive, or the end of the last transaction."""
    life_at: float = field(default_factory=time.monotonic)
    """When anything last went through, rows or none."""
    written: int = 0
    reconnects: int = 0
    reason: str = ""
    """Why the log was last interrupted."""
