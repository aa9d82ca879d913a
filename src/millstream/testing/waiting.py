"""Wait in a test for what another session or process is about to do.

No test depends on how fast a machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float = 90.0, pause: float = 0.02) -> T:
    """Return the first true value of the condition, looked at again and again."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen within {seconds:g} s")
        time.sleep(pause)
    return found
