"""A large stack: deep recursion ends in a result or in an error of ours, and an interrupt reaches
the work.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from millstream.errors import QueryTooDeep
from millstream.large_stack import on_large_stack


def depth(levels: int) -> int:
    return 1 + depth(levels - 1) if levels else 0


def nested(levels: int) -> Iterator[int]:
    """Recurse by generators, which take their frames from the C stack."""
    if levels:
        yield from nested(levels - 1)
    yield levels


def test_a_recursion_of_a_hundred_thousand_frames_ends_well() -> None:
    """A sum of 50 terms once raised RecursionError out of the planner."""
    assert on_large_stack(depth)(100_000) == 100_000
    assert next(on_large_stack(lambda: iter([next(nested(100_000))]))()) == 0


def test_what_is_deeper_still_is_refused() -> None:
    with pytest.raises(QueryTooDeep) as caught:
        on_large_stack(depth)(10_000_000)
    assert caught.value.code == "MS106"
    assert caught.value.hint


def test_the_limit_of_the_process_is_what_it_was() -> None:
    before = sys.getrecursionlimit()
    on_large_stack(depth)(10_000)
    assert sys.getrecursionlimit() == before


def test_work_inside_work_stays_on_one_thread() -> None:
    inner = on_large_stack(threading.get_ident)
    outer = on_large_stack(lambda: (threading.get_ident(), inner()))
    one, other = outer()
    assert one == other != threading.get_ident()


def test_errors_arrive_as_they_are() -> None:
    def failing() -> None:
        raise KeyError("k")

    with pytest.raises(KeyError):
        on_large_stack(failing)()


def test_an_interrupt_of_the_waiting_thread_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C meets the thread that waits; the work must not go on with the connection behind its
    back.
    """
    begun, ended = threading.Event(), list[str]()
    join = threading.Thread.join
    interrupts = iter([KeyboardInterrupt()])

    def working() -> None:
        try:
            begun.set()
            while True:
                pass
        except KeyboardInterrupt:
            ended.append("interrupted")
            raise

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        begun.wait()
        if (interrupt := next(interrupts, None)) is not None:
            raise interrupt
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)
    with pytest.raises(KeyboardInterrupt):
        on_large_stack(working)()
    assert ended == ["interrupted"]
