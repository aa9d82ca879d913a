"""`millstream init`: it connects, which installs the catalog."""

from __future__ import annotations

import json

from tests.cli.conftest import Line, status


def test_init_connects_and_says_so(line: Line) -> None:
    line.double.answers["status"] = [status()]
    assert line("init").out == 'Millstream is installed in database "d", with 1 stream tables.\n'
    assert json.loads(line("init", "--json").out) == {
        "installed": True,
        "database": "d",
        "stream_tables": 1,
    }
