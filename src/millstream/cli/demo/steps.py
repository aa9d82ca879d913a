"""The steps before and after the demo's live part: a spinner during a step, a line after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


class ProgressSteps:
    """Prints each step."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """Show a step for the length of a `with` block."""
        began = time.monotonic()
        with self._console.status(doing):
            yield
        took = f"  {time.monotonic() - began:.1f} s"
        self._console.print(Text.assemble(("✓ ", "bold green"), doing, (took, "dim")))
