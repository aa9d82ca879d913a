"""Which requests wait for others."""

from __future__ import annotations

from millstream.catalog.requests import Kind, Request
from millstream.service.run.desk import may_begin


def request(id: int, kind: Kind, name: str | None = "a") -> Request:
    return Request(id, kind, name, {}, "public", "somebody")


def ids(waiting: list[Request], begun: list[Request] | None = None) -> list[int]:
    return [one.id for one in may_begin(waiting, begun or [])]


def test_what_changes_something_waits_for_what_changes_something() -> None:
    create, reader = request(1, "create", "a"), request(2, "create", "b")
    assert ids([create, reader]) == [1]
    assert ids([create, reader], [create]) == []
    assert ids([reader]) == [2]


def test_a_refresh_waits_for_changes_of_its_stream_table_before_it_and_for_no_others() -> None:
    alter = request(1, "alter", "a")
    waiting = [alter, request(2, "refresh", "b"), request(3, "refresh", 'public."A"'), request(4, "validate", None)]
    assert ids(waiting) == [1, 2, 4]
    assert ids(waiting, [alter]) == [2, 4]
    assert ids([request(1, "refresh"), request(2, "drop")]) == [1, 2], "the lock of the stream table decides"


def test_what_has_begun_is_not_begun_again() -> None:
    refresh = request(1, "refresh")
    assert ids([refresh, request(2, "verify")], [refresh]) == [2]
