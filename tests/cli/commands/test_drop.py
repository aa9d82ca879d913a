"""`millstream drop`: what it asks of the API."""

from __future__ import annotations

from tests.cli.conftest import Line


def test_drop_drops(line: Line) -> None:
    assert line("drop", "totals", "--cascade").out == "totals is dropped.\n"
    assert line.double.called("drop_stream_table") == [(("totals",), {"cascade": True})]
