"""Run a function on a thread whose stack is large enough for deep queries.

The depth of a query is the depth of its syntax tree: a sum of 1,000 terms is 999 levels deep. The
parser, the printer and the planner recurse, with some twenty Python frames for each level, so
Python's default limit of 1,000 frames is reached after some 50 terms. The recursion limit alone
cannot be raised: frames that are called from C (generators, `re.sub`, hashing) use the thread's C
stack, and a full C stack ends the process.

    on_large_stack(f)(x)     f(x) on a thread with a stack of STACK bytes, where STACK // PER_FRAME frames may be open

A query that is deeper still raises QueryTooDeep.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from threading import Lock, Thread, current_thread, stack_size
from typing import Generic, ParamSpec, TypeVar

from millstream.errors import QueryTooDeep

P = ParamSpec("P")
T = TypeVar("T")

# Address space; only pages that are used become memory. If the system does not grant it, less is
# requested.
STACK = 512 * 2**20
SMALLEST = 8 * 2**20
# More than one frame takes on the C stack, measured: 0.4 to 1.1 kB, for every way of recursing that
# the planner has.
PER_FRAME = 3_500

_starting = Lock()


def on_large_stack(act: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function: run it on a large stack, and raise QueryTooDeep where even that is too
    small.
    """

    @functools.wraps(act)
    def acting(*args: P.args, **kwargs: P.kwargs) -> T:
        work = functools.partial(act, *args, **kwargs)
        if isinstance(current_thread(), _LargeStack):
            return work()
        try:
            return _started(work, STACK).result()
        except RecursionError as error:
            raise QueryTooDeep.planned() from error

    return acting


class _LargeStack(Thread, Generic[T]):
    """The thread that does one piece of work."""

    def __init__(self, work: Callable[[], T], frames: int) -> None:
        super().__init__(name="large stack", daemon=True)
        context = copy_context()
        self.work: Callable[[], T] = lambda: context.run(work)
        self.frames = frames
        self.done: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with _frames(self.frames):
                self.done.append(self.work())
        except BaseException as error:
            self.error = error

    def result(self) -> T:
        """Wait for the work. An interrupt of the waiting thread (Ctrl-C) interrupts the work too."""
        try:
            self.join()
        except BaseException:
            self._interrupt()
            self.join()
            raise
        if self.error is not None:
            raise self.error
        return self.done[0]

    def _interrupt(self) -> None:
        identity, kind = ctypes.c_ulong(self.ident or 0), ctypes.py_object(KeyboardInterrupt)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, kind)


def _started(work: Callable[[], T], size: int) -> _LargeStack[T]:
    """Start the thread, with a smaller stack where the system refuses this one."""
    thread = _LargeStack(work, size // PER_FRAME)
    with _starting:
        # The size is that of all threads started from here on; another one started meanwhile only
        # reserves more.
        former = stack_size(size)
        try:
            thread.start()
        except RuntimeError:
            if size <= SMALLEST:
                raise
        else:
            return thread
        finally:
            stack_size(former)
    return _started(work, size // 4)


_limits: list[int] = []
_former = sys.getrecursionlimit()
_limiting = Lock()


@contextmanager
def _frames(count: int) -> Iterator[None]:
    """Allow so many frames.

    The limit is the process's: it stays raised until the last thread that needs it is done.
    """
    global _former
    with _limiting:
        if not _limits:
            _former = sys.getrecursionlimit()
        _limits.append(count)
        sys.setrecursionlimit(max(_former, *_limits))
    try:
        yield
    finally:
        with _limiting:
            _limits.remove(count)
            sys.setrecursionlimit(max(_former, *_limits) if _limits else _former)
