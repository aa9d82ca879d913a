"""A progress bar for work that takes longer than a moment.

The bar appears after `DELAY` seconds, on stderr, and only on a terminal; it disappears when the
work is done. A step may report the fraction that is done; otherwise the bar pulses.
"""

from __future__ import annotations

import sys
from threading import Lock, Timer
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from millstream.cli.output import err

DELAY = 0.7


class Waiting:
    """Shows the current step once the work has taken `DELAY` seconds."""

    def __init__(self, doing: str) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
        )
        self._bar = Progress(
            *columns, console=err(), transient=True, disable=not sys.stderr.isatty()
        )
        self._task: TaskID = self._bar.add_task(doing, total=None)
        self._timer = Timer(DELAY, self._appear)
        self._timer.daemon = True
        self._lock = Lock()
        self._over = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def report(self, step: str, fraction: float | None = None) -> None:
        """Show the current step and, if known, how much of it is done."""
        total, done = (None, 0.0) if fraction is None else (1.0, fraction)
        self._bar.update(self._task, description=step, total=total, completed=done)

    def _appear(self) -> None:
        # If the work ends at the moment the timer fires, nothing appears.
        with self._lock:
            if not self._over:
                self._bar.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            self._bar.stop()
