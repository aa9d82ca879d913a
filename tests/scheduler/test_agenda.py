"""Deadlines in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from millstream.catalog.stream_tables import StreamTable
from millstream.scheduler.agenda import UNKNOWN, Agenda, deadline, target
from millstream.scheduler.graph import Dependency, Graph
from millstream.testing.catalog_rows import stream_table

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def agenda(*tables: StreamTable, reads: tuple[Dependency, ...] = ()) -> Agenda:
    made = Agenda()
    made.load(tables, Graph({table.id: table.name for table in tables}, reads))
    return made


def ids(made: Agenda, now: datetime = NOON) -> list[list[int]]:
    return [sorted(due.ids) for due in made.due(now)]


def test_the_most_overdue_graph_comes_first_and_what_is_not_due_not_at_all() -> None:
    made = agenda(
        stream_table(1, cut_at=NOON - 2 * SECOND),
        stream_table(2, cut_at=NOON - 9 * SECOND),
        stream_table(3, cut_at=NOON),
        stream_table(4),
        stream_table(5, schedule="manual"),
    )
    assert ids(made) == [[4], [2], [1]]
    assert made.due(NOON)[1].deadline == NOON - 8 * SECOND


def test_a_graph_is_due_as_one_with_those_that_are_pulled() -> None:
    made = agenda(
        stream_table(1, schedule="1h", cut_at=NOON - SECOND),
        stream_table(2, cut_at=NOON - SECOND),
        stream_table(3, cut_at=NOON - 5 * SECOND),
        reads=(Dependency(2, 1),),
    )
    assert ids(made) == [[3], [1, 2]]


def test_what_is_being_refreshed_is_not_due_nor_are_those_that_are_connected_with_it() -> None:
    made = agenda(stream_table(1), stream_table(2), stream_table(3), reads=(Dependency(2, 1),))
    made.started([1])
    assert ids(made) == [[3]]
    assert 2 in made.running()
    assert 3 not in made.running()
    made.finished([1], 2.0)
    assert ids(made) == [[1, 2], [3]]
    assert [due.seconds for due in made.due(NOON)] == [2.0, UNKNOWN]


def test_the_catalog_read_again_does_not_forget_what_runs_and_what_was_found() -> None:
    table = stream_table(1, cut_at=NOON - 5 * SECOND)
    made = agenda(table, stream_table(2))
    made.started([2])
    made.found_nothing([1], NOON)
    made.load([table, stream_table(2)], made.graph)
    assert ids(made) == []
    assert made.next_due_at() == NOON + SECOND


def test_one_that_somebody_else_works_on_is_left_alone_until_its_row_changes() -> None:
    busy = stream_table(1, status="INITIALIZING")
    made = agenda(busy, stream_table(2))
    made.not_refreshed(1, NOON)
    assert ids(made) == [[2]]
    assert ids(made, NOON + SECOND) == [[2], [1]]
    for _ in range(9):
        made.not_refreshed(1, NOON)
    made.load([busy, stream_table(2)], made.graph)
    assert ids(made, NOON + 4 * SECOND) == [[2]], "longer each time"
    assert ids(made, NOON + 10 * SECOND) == [[2], [1]]
    made.update([stream_table(1)])
    assert ids(made) == [[1], [2]]


def test_those_that_are_pulled_only_have_no_deadline_of_their_own() -> None:
    made = agenda(
        stream_table(1, schedule="calculated", cut_at=NOON),
        stream_table(2),
        reads=(Dependency(2, 1),),
    )
    assert [due.deadline for due in made.due(NOON, [1])] == [NOON]
    assert ids(made) == [[1, 2]]


def test_a_schedule_that_cannot_be_computed_with_is_left_out() -> None:
    made = agenda(
        stream_table(1, schedule="3000000d", cut_at=NOON),
        stream_table(2, schedule="CRON_TZ=Nowhere/At_all 0 6 * * *", cut_at=NOON),
        stream_table(3),
    )
    made.update([stream_table(3), stream_table(1, schedule="1500000d", cut_at=NOON)])
    assert ids(made) == [[3]]
    assert made.watched() == []


def test_a_clock_that_was_set_back_does_not_put_off_a_refresh() -> None:
    late = NOON + timedelta(hours=1)
    looked_at, refreshed = stream_table(1, cut_at=NOON), stream_table(2, cut_at=late)
    made = agenda(looked_at, refreshed)
    made.found_nothing([1], late)
    assert ids(made, NOON + 2 * SECOND) == []
    made.load([looked_at, refreshed], made.graph, NOON + SECOND)
    assert ids(made, NOON + 2 * SECOND) == [[1], [2]]


def test_a_stream_table_that_is_gone_is_forgotten() -> None:
    made = agenda(stream_table(1), stream_table(2))
    made.load([stream_table(2)], Graph({2: "b"}, ()))
    assert ids(made) == [[2]]
    made.found_nothing([1], NOON)
    made.update([stream_table(1)])
    assert made.tables.keys() == {2}


def test_finding_nothing_counts_like_a_refresh_but_not_before_the_first_one() -> None:
    table = stream_table(1, schedule="10s", cut_at=NOON - 20 * SECOND)
    assert deadline(table) == NOON - 10 * SECOND
    assert deadline(table, NOON) == NOON + 10 * SECOND
    never = deadline(stream_table(1), NOON)
    assert never is not None
    assert never < NOON


def test_no_deadline_for_what_is_suspended_or_manual_and_a_later_one_after_a_failure() -> None:
    assert deadline(stream_table(status="SUSPENDED")) is None
    assert deadline(stream_table(schedule="calculated", cut_at=NOON)) is None
    assert deadline(stream_table(cut_at=NOON, next_try_at=NOON + 60 * SECOND)) == NOON + 60 * SECOND
    assert target(stream_table(schedule="5s"), NOON) == 5 * SECOND
    assert target(stream_table(schedule="continuous"), NOON) is None


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.integers(1, 3))
def test_nothing_starves_however_slow_the_machine(schedules: list[int], at_once: int) -> None:
    """A refresh takes as long as the shortest schedule: more is due than can be done."""
    made = agenda(
        *(stream_table(id, schedule=f"{every}s", cut_at=NOON) for id, every in enumerate(schedules))
    )
    now, refreshed = NOON, dict[int, datetime]()
    for _ in range(4 * (len(schedules) + max(schedules))):
        now += min(schedules) * SECOND
        for due in made.due(now)[:at_once]:
            made.update(
                [stream_table(id, schedule=made.tables[id].schedule, cut_at=now) for id in due.ids]
            )
            refreshed |= dict.fromkeys(due.ids, now)
    longest = max(schedules) * SECOND + (len(schedules) + 1) * min(schedules) * SECOND
    assert refreshed.keys() == made.tables.keys()
    assert min(refreshed.values()) >= now - longest
