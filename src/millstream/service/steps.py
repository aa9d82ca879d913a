"""What a process remembers of its hand-overs between ticks; all that matters is in the catalog."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Steps:
    """When it last looked at what, by its own clock."""

    looked_at: float = float("-inf")
    asked_at: dict[int, float] = field(default_factory=dict)
    """By source: when it was last asked whether it can be handed over."""
    has_warned: bool = False
    """That the slot lags behind."""
