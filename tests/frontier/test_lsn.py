"""Positions in WAL: PostgreSQL's text form and integers."""

from __future__ import annotations

import pytest

from millstream.frontier import lsn


@pytest.mark.parametrize(
    ("text", "number"), [("0/0", 0), ("0/10", 16), ("1/0", 1 << 32), ("16/B374D848", 97500059720)]
)
def test_the_text_form_is_read_and_printed(text: str, number: int) -> None:
    assert lsn.parse(text) == number
    assert lsn.printed(number) == text


def test_the_half_below_is_not_padded_and_the_order_is_that_of_the_numbers() -> None:
    assert lsn.printed((1 << 32) + 1) == "1/1"
    assert lsn.parse("1/0") > lsn.parse("0/FFFFFFFF")
