"""`millstream verify`: its exit code tells whether all rows are equal."""

from __future__ import annotations

import json

from tests.cli.conftest import Line, status, verification

from millstream.cli.exit_codes import Exit


def test_verify_ends_with_0_when_all_is_equal(line: Line) -> None:
    line.double.answers["verify"] = verification()
    ended = line("verify", "totals")
    assert ended.code == Exit.OK
    assert "totals equals its query: 4 rows, none missing, none extra, at" in ended.out
    line.double.answers["verify"] = verification(rounded=("mean",))
    assert "none extra (mean to 12 digits), at" in line("verify", "totals").out


def test_verify_ends_with_1_and_names_the_rows_when_one_differs(line: Line) -> None:
    sample = [{"side": "missing", "row": ("north", 3)}, {"side": "extra", "row": ("[b]", None)}]
    bad = verification(name="bad", ok=False, missing=1, extra=1, sample=sample)
    line.double.answers["verify"] = lambda name: bad if name == "bad" else verification(name=name)
    ended = line("verify", "good", "bad")
    assert ended.code == Exit.CHECK_FAILED
    assert "bad differs from its query: 1 rows missing, 1 extra" in ended.out
    assert "('north', 3)" in ended.out
    assert "('[b]', None)" in ended.out
    assert [one["ok"] for one in json.loads(line("verify", "good", "bad", "--json").out)] == [
        True,
        False,
    ]


def test_verify_of_all_takes_the_names_from_the_catalog(line: Line) -> None:
    line.double.answers |= {"status": [status(name='O"dd')], "verify": verification()}
    assert line("verify", "--all").code == Exit.OK
    assert line.double.called("verify") == [(('"public"."O""dd"',), {})]
