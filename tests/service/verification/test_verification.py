"""A verification as a document, which a service sends as its answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from millstream.frontier.snapshot import Snapshot
from millstream.service.verification.verification import Verification


def test_what_is_written_is_read_back() -> None:
    found = Verification(
        "totals", False, 4, 1, 0, ({"side": "missing", "row": ["north", 3]},), Snapshot(10, 20, (12,)),
        datetime(2024, 6, 1, 12, tzinfo=UTC), ("mean",),
    )  # fmt: skip
    assert Verification.from_dict(json.loads(json.dumps(found.as_dict()))) == found
