"""How values print: for people, and as JSON."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from millstream.cli.output import age, err, milliseconds, number, out, plain, print_error, table
from millstream.errors import MillstreamError
from millstream.frontier.snapshot import Snapshot


@dataclass(frozen=True)
class Thing:
    """Something with a value of any type in it."""

    value: object


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (Decimal("1.10"), "1.10"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00+00:00"),
        (date(2024, 1, 2), "2024-01-02"),
        (timedelta(seconds=2), 2.0),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x00\xff", "\\x00ff"),
        (Snapshot(1, 3, (2,)), "1:3:2"),
        (Thing(Thing((1, "a"))), {"value": {"value": [1, "a"]}}),
        ({"a": {1: Decimal("2")}}, {"a": {"1": "2"}}),
    ],
)
def test_any_value_has_a_form_in_json(value: object, expected: object) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [(None, "-"), (0.42, "0.4 s"), (12.3, "12 s"), (180, "3 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_an_age_has_a_suitable_unit(seconds: float | None, printed: str) -> None:
    assert age(seconds) == printed


def test_numbers_are_grouped_and_small_times_keep_a_digit() -> None:
    assert (number(1234567), number(None)) == ("1,234,567", "-")
    assert (milliseconds(3.21), milliseconds(1234.5), milliseconds(None)) == (
        "3.2 ms",
        "1,234 ms",
        "-",
    )


CONTROLS = "totals\x1b]0;owned\x1b[2J\x9b31m\u202e"
ESCAPED = r"totals\x1b]0;owned\x1b[2J\x9b31m\u202e"


def test_no_name_controls_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Any role may give a table such a name, and an operator lists it."""
    out().print(f"{CONTROLS} is created", markup=False)
    out().print(table("", ["name"], [[CONTROLS]]))
    err().print(CONTROLS, markup=False)
    print_error(MillstreamError(f'"{CONTROLS}" is gone', hint="Two\nlines."), as_json=False)
    told, complained = capsys.readouterr()
    assert f"{ESCAPED} is created\n" in told
    assert told.count(ESCAPED) == 2
    assert complained.count(ESCAPED) == 2
    assert "Two\nlines." in complained
    assert all(c.isprintable() or c == "\n" for c in told + complained)
