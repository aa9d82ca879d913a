"""Alerts about freshness: once for each episode, with the cause."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from millstream.catalog.stream_tables import StreamTable
from millstream.scheduler.freshness import NAMED, FreshnessWatch, Watched, watched
from millstream.testing.catalog_rows import stream_table

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
TEN = timedelta(seconds=10)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def table(id: int = 1, *, as_of: float = 0, cause: str = "behind", seconds: float = 0.0) -> Watched:
    return Watched(id, f"t{id}", TEN, at(as_of), cause, seconds=seconds)  # type: ignore[arg-type]  # one of the causes


def looked(watch: FreshnessWatch, now: float, *tables: Watched) -> list[str]:
    return [alert.kind for alert in watch.look(tables, at(now), workers=4)]


def started(*tables: Watched) -> FreshnessWatch:
    """A watch that has seen these tables at noon."""
    watch = FreshnessWatch()
    assert looked(watch, 0, *tables) == []
    return watch


def test_a_table_is_stale_when_it_is_older_than_twice_its_target_and_a_second() -> None:
    watch = started(table(cause="failing"))
    assert looked(watch, 21, table(cause="failing")) == []
    assert looked(watch, 21.1, table(cause="failing")) == ["stale"]
    assert set(watch.stale) == {1}


def test_an_episode_has_one_alert_and_the_next_one_another() -> None:
    watch = started(table())
    assert looked(watch, 30, table()) == ["stale", "falling_behind"]
    assert [looked(watch, now, table()) for now in (31, 40, 100)] == [[], [], []]
    # Calm, but not for long enough: four targets.
    assert looked(watch, 120, table(as_of=110)) == []
    assert looked(watch, 135, table(as_of=110)) == []
    # Late again at 135, within the same episode; then calm until the episode is over.
    assert looked(watch, 160, table(as_of=155)) == []
    assert set(watch.stale) == {1}
    assert looked(watch, 180, table(as_of=175)) == []
    assert set(watch.stale) == set()
    assert looked(watch, 300, table(as_of=175)) == ["stale", "falling_behind"]


def test_a_table_that_is_refreshed_too_seldom_is_one_episode() -> None:
    """Its age goes up and down: it is late just before each refresh."""
    watch = started(table())
    alerts = [
        kind for now in range(1, 1000) for kind in looked(watch, now, table(as_of=now // 25 * 25))
    ]
    assert alerts == ["stale", "falling_behind"]


def test_time_before_the_service_started_or_a_table_was_resumed_does_not_count() -> None:
    old = table(as_of=-3600)
    watch = started(old)
    assert looked(watch, 20, old) == []
    assert looked(watch, 22, old) == ["stale", "falling_behind"]
    assert looked(watch, 23) == [], "suspended"
    assert looked(watch, 100, old) == []
    assert looked(watch, 121, old) == []
    assert looked(watch, 122, old) == ["stale", "falling_behind"]


def test_only_tables_that_nothing_but_time_keeps_back_mean_that_the_service_falls_behind() -> None:
    tables = table(1, cause="failing"), table(2, cause="held back")
    watch = started(*tables, table(3))
    assert looked(watch, 30, *tables, table(3, as_of=25)) == ["stale", "stale"]
    assert looked(watch, 60, *tables, table(3, as_of=25)) == ["stale", "falling_behind"]


def test_falling_behind_names_the_latest_tables_and_the_number_of_workers_needed() -> None:
    tables = [table(id, as_of=-id, seconds=5.0) for id in range(1, 21)]
    watch = started(*tables)
    *_, alert = watch.look(tables, at(30), workers=4)
    assert alert.kind == "falling_behind"
    assert alert.facts["stream_tables"] == [f"t{id}" for id in range(20, 20 - NAMED, -1)]
    assert (alert.facts["count"], alert.facts["workers"], alert.facts["workers_needed"]) == (
        20,
        4,
        10.0,
    )
    assert "max_concurrent_refreshes" in str(alert.facts["hint"])
    enough = FreshnessWatch()
    enough.look([tables[0]], at(0), workers=4)
    *_, alert = enough.look([tables[0]], at(30), workers=4)
    assert "max_concurrent_refreshes" not in str(alert.facts["hint"])


def test_an_alert_has_age_target_and_cause() -> None:
    failing = replace(table(cause="failing"), error="refresh failed [MS402]")
    watch = started(failing)
    [alert] = watch.look([failing], at(30), workers=4)
    assert alert.facts == {
        "stream_table": "t1", "age_seconds": 30.0, "target_seconds": 10.0, "data_timestamp": NOON.isoformat(),
        "cause": "failing", "error": "refresh failed [MS402]",
    }  # fmt: skip


FRESH = stream_table(schedule="10s", data_timestamp=NOON, cut_at=NOON)


@pytest.mark.parametrize(
    "other",
    [
        replace(FRESH, status="SUSPENDED"),
        replace(FRESH, data_timestamp=None),
        replace(FRESH, schedule="manual"),
        replace(FRESH, schedule="calculated"),
        replace(FRESH, schedule="continuous"),
    ],
)
def test_what_promises_nothing_is_not_watched(other: StreamTable) -> None:
    assert watched(FRESH) == Watched(1, '"public"."totals"', TEN, NOON)
    assert watched(other) is None


def test_rows_are_as_of_the_last_look_that_found_no_change() -> None:
    found = watched(FRESH, looked_at=at(60))
    assert found is not None
    assert found.as_of == at(60)
    held_back = replace(FRESH, cut_at=at(30))
    found = watched(held_back, looked_at=at(60))
    assert found is not None
    assert (found.as_of, found.cause) == (NOON, "held back")


def test_the_alert_of_a_failing_table_has_the_error() -> None:
    found = watched(replace(FRESH, failed_tries=2, last_error="broken [MS402]\nDETAIL: ..."))
    assert found is not None
    assert (found.cause, found.error) == ("failing", "broken [MS402]")


def test_a_refresh_just_before_cron_fires_does_not_make_the_target_short() -> None:
    found = watched(replace(FRESH, schedule="@hourly", cut_at=at(3599), data_timestamp=at(3599)))
    assert found is not None
    assert found.target == timedelta(hours=1)
