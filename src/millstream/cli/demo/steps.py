"""The steps before and after the demo's live part: a spinner while one lasts, a line when it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text


class ProgressSteps:
    """Tells what is being done; `report` has the shape that `connect(progress=...)` asks for."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._doing = ""
        self._status: Status | None = None

    @contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """Do one step inside the `with` block."""
        began = time.monotonic()
        self._doing = doing
        with self._console.status(doing) as self._status:
            yield
        self._status = None
        took = f"  {time.monotonic() - began:.1f} s"
        self._console.print(Text.assemble(("✓ ", "bold green"), doing, (took, "dim")))

    def report(self, said: str, fraction: float | None = None) -> None:
        """Show what the step is at; outside a step there is nobody to tell."""
        if self._status is None:
            return
        done = "" if fraction is None else f" {fraction:.0%}"
        self._status.update(f"{self._doing}: {said}{done}")
        if not self._console.is_terminal:
            self._console.print(f"  {said}{done} ...", markup=False)
