"""When a stream table was last compared with its query, and what was found."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from millstream import Millstream
from millstream.catalog import verifications
from millstream.catalog.verifications import KEPT, Evidence
from millstream.frontier.snapshot import Snapshot

AT = datetime(2024, 6, 1, 12, tzinfo=UTC)


def evidence(id_: int, number: int) -> Evidence:
    sample = [
        {
            "side": "missing",
            "n": number,
            "d": date(2024, 6, 1),
            "m": Decimal("2.50"),
            "nothing": None,
        }
    ]
    return Evidence(id_, Snapshot(10, 20, (12,)), AT, number, 0, sample)


def test_the_last_comparison_is_what_counts(unfilled: Millstream) -> None:
    conn, id_ = unfilled.app.conn, unfilled.app.named("totals").id
    found = "SELECT last_verified_ok, last_verified_at IS NOT NULL FROM millstream.stream_tables"
    assert conn.execute(found).fetchall() == [(None, False)]
    for ok in (True, False):
        verifications.record(conn, id_, ok=ok)
        assert conn.execute(found).fetchall() == [(ok, True)]


def test_values_of_any_type_are_stored_as_json_and_old_evidence_is_removed(
    unfilled: Millstream,
) -> None:
    """Evidence of what is wrong all the time must not fill the disk."""
    conn, id_ = unfilled.app.conn, unfilled.app.named("totals").id
    for number in range(KEPT + 3):
        verifications.add_evidence(conn, evidence(id_, number))
    rows = conn.execute(
        "SELECT missing, sample FROM millstream.verification_failures ORDER BY id"
    ).fetchall()
    assert [missing for missing, _ in rows] == [*range(3, KEPT + 3)]
    assert rows[0][1] == [
        {"side": "missing", "n": 3, "d": "2024-06-01", "m": "2.50", "nothing": None}
    ]
