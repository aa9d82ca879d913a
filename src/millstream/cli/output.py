"""What commands print: tables and sentences for people, JSON for programs.

Results go to stdout, everything else to stderr, so that a pipe carries results only.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from millstream.cli.stdio import is_unicode
from millstream.errors import MillstreamError
from millstream.frontier.snapshot import Snapshot
from millstream.observe.log import printable

# The width of tables in a pipe, where there is no screen to fit them to.
PIPE_WIDTH = 200

COLOURS = {
    "ACTIVE": "green",
    "INITIALIZING": "yellow",
    "SUSPENDED": "red",
    "ERROR": "red",
    "NO_DATA": "dim",
    "DIFFERENTIAL": "green",
    "FULL": "yellow",
    "REINITIALIZE": "yellow",
    "FAILED": "red",
}


class SafeConsole(Console):
    """A console whose terminal no name and no value can control: what would is escaped."""

    # Any: what Rich can print.
    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments, each with its text escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def out() -> Console:
    """Return the console for results, stdout."""
    return SafeConsole(
        width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, soft_wrap=False
    )


def err() -> Console:
    """Return the console for errors and progress, stderr."""
    return SafeConsole(stderr=True, highlight=False)


def print_json(value: object) -> None:
    """Print one JSON document on stdout."""
    _print_document(plain(value), sys.stdout)


def print_error(error: MillstreamError, *, as_json: bool) -> None:
    """Print message, detail and hint on stderr; never a traceback."""
    if as_json:
        _print_document({"error": error.as_dict()}, sys.stderr)
        return
    text = Text.assemble(("error: ", "bold red"), f"{error.message} [{error.code}]")
    for label, part in (("detail", error.detail), ("hint", error.hint)):
        if part:
            text.append_text(Text.assemble((f"\n{label}: ", "bold"), part))
    err().print(text, soft_wrap=True)


def print_interrupted(*, as_json: bool) -> None:
    """Print one line on stderr after Ctrl-C."""
    error = MillstreamError("interrupted", detail="Nothing was left half done.")
    if as_json:
        print_error(error, as_json=True)
    else:
        err().print("interrupted: nothing was left half done")


def _print_document(value: object, stream: TextIO) -> None:
    # Escaped characters pass through any encoding, and the output is still JSON.
    print(json.dumps(value, indent=2, ensure_ascii=not is_unicode(stream)), file=stream)


# Results contain values of any type, such as rows of the user's tables.
def plain(value: Any) -> Any:
    """Convert a value to JSON's types; values without one are formatted like PostgreSQL does."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"\\x{value.hex()}"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Snapshot):
        return str(value)
    if hasattr(value, "as_dict"):
        return plain(value.as_dict())
    if dataclasses.is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, Iterable):
        return [plain(part) for part in value]
    return str(value)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a table; a column whose name begins with `#` has numbers, aligned to the right."""
    made = Table(title=title or None, title_justify="left", header_style="bold", expand=False)
    for column in columns:
        made.add_column(
            column.lstrip("#"),
            justify="right" if column.startswith("#") else "left",
            overflow="fold",
        )
    for row in rows:
        # Text, so that a bracket in a name or row is not taken for markup.
        made.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
    return made


def coloured(word: str | None) -> Text:
    """Return a status or an action in its colour."""
    return Text(word or "-", style=COLOURS.get(word or "", ""))


def number(value: int | None) -> str:
    """Format a number as 1,234,567, or a dash for None."""
    return "-" if value is None else f"{value:,}"


def milliseconds(value: float | None) -> str:
    """Format a duration."""
    if value is None:
        return "-"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def moment(at: datetime | None) -> str:
    """Format a timestamp to the second, in the local time zone."""
    return "-" if at is None else at.astimezone().isoformat(sep=" ", timespec="seconds")


def clock(at: datetime) -> str:
    """Format the local time of day of a recent timestamp."""
    return at.astimezone().strftime("%H:%M:%S")


def age(seconds: float | None) -> str:
    """Format an age: 0.4 s, 12 s, 3 min, 2 h, 5 d."""
    if seconds is None:
        return "-"
    for limit, length, unit in (
        (10, 1, "s"),
        (120, 1, "s"),
        (7200, 60, "min"),
        (172_800, 3600, "h"),
    ):
        if seconds < limit:
            return f"{seconds / length:.{1 if limit == 10 else 0}f} {unit}"
    return f"{seconds / 86_400:.0f} d"
