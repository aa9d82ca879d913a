"""Start requests in the order in which they were made, as far as the order matters.

Those that create, alter or drop are executed one after the other, because the second may concern
what the first has created. Others run in parallel, unless an earlier one concerns the same stream
table.

A request about a stream table that this service is refreshing waits: it is started again after a
second, until it can be executed. Others are started before it then, unless they must come after it.

If the execution of a request raised an error, such as a lost connection, the request is not
answered: it is released and waits again, or fails after too many tries. After an error no request
is started for a while, which grows with each further error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from threading import Timer

from millstream.catalog.requests import OpenRequest
from millstream.postgres.connection import Connection
from millstream.service.app import App
from millstream.service.requests import answer
from millstream.service.run.workers import Finished, Task, Workers

CHANGING = ("create", "create_or_replace", "alter", "drop")
# These are in addition to the workers that refresh by schedule, so that an answer does not wait for
# those.
WORKERS = 2
TAKE_UP, PRUNE = "take up requests", "prune requests"
# Seconds between two checks without a notification, and between two removals of old requests.
LOOK_AGAIN, PRUNE_EVERY = 15.0, 3600.0
# Seconds without starting a request after an error.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
# Seconds until a request that had to wait for a refresh is started again.
BEGIN_AGAIN = 1.0


class RequestDesk:
    """The running requests, and the workers for them."""

    def __init__(
        self,
        open_app: Callable[[], App],
        wake: Callable[[], None],
        prepare: Callable[[App], None] = lambda app: None,
    ) -> None:
        self.workers = Workers("request", open_app, wake, prepare)
        self.workers.limit = WORKERS
        self._wake = wake
        self._begun = dict[int, OpenRequest]()
        # What raised an error: `take_up`, and the requests to release.
        self._again = list[Task]()
        # When each request that may be waiting again was last executed.
        self._executed_at = dict[int, float]()
        self._begin_at = float("inf")
        self._is_open = False
        self._looked_at = self._pruned_at = self._not_before = float("-inf")
        self._pause = 0.0

    def open(self) -> None:
        """Take over the unanswered requests of another process first."""
        self.workers.submit(Task(TAKE_UP, answer.take_up))

    def is_due(self) -> bool:
        """Return True if requests must be checked without a notification: a task has ended, or some
        time has passed.
        """
        now = time.monotonic()
        is_time = now - self._looked_at > LOOK_AGAIN or now >= self._begin_at
        return self.workers.has_finished or (now >= self._not_before and is_time)

    def look(self, conn: Connection) -> None:
        """Start the requests that may begin."""
        self._looked_at = time.monotonic()
        for finished in self.workers.finished():
            self._take_in(finished)
        if self._looked_at < self._not_before:
            self._looked_at = float("-inf")
            return
        while self._again:
            self.workers.submit(self._again.pop())
        if not self._is_open:
            return
        if self._looked_at - self._pruned_at > PRUNE_EVERY and self.workers.free:
            self._pruned_at = self._looked_at
            self.workers.submit(Task(PRUNE, answer.prune))
        self._begin_at = float("inf")
        waiting = answer.waiting(conn)
        self._executed_at = {
            one.id: at for one in waiting if (at := self._executed_at.get(one.id)) is not None
        }
        for request in self._in_turn(may_begin(waiting, self._begun.values())):
            if self.workers.free and not self._has_to_pause(request):
                self._begin(request)

    def _in_turn(self, found: Sequence[OpenRequest]) -> list[OpenRequest]:
        """Sort requests: those that were not executed yet, then those for which that is longest ago.

        However many have to wait for a refresh, the others have their turn.
        """
        return sorted(found, key=lambda request: self._executed_at.get(request.id, float("-inf")))

    def _has_to_pause(self, request: OpenRequest) -> bool:
        """Return True for a request that was just put back, and check it again soon."""
        begin_at = self._executed_at.get(request.id, float("-inf")) + BEGIN_AGAIN
        if begin_at <= self._looked_at:
            return False
        if begin_at < self._begin_at:
            self._begin_at = begin_at
            self._wake_in(begin_at - self._looked_at)
        return True

    def _take_in(self, finished: Finished) -> None:
        task = finished.task
        if finished.error is not None:
            self._again += [task] if task.name == TAKE_UP else [_release(id) for id in task.ids]
            self._rest()
            return
        self._pause = 0.0
        self._is_open |= task.name == TAKE_UP
        for id in task.ids:
            self._begun.pop(id, None)
            self._executed_at[id] = self._looked_at

    def _rest(self) -> None:
        """Start nothing for a while, twice as long as the last time."""
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
        self._not_before = time.monotonic() + self._pause
        self._wake_in(self._pause)

    def _wake_in(self, seconds: float) -> None:
        timer = Timer(seconds, self._wake)
        timer.daemon = True
        timer.start()

    def _begin(self, request: OpenRequest) -> None:
        self._begun[request.id] = request
        name = f"request {request.id}: {request.kind}"
        self.workers.submit(Task(name, lambda app: answer.execute(app, request.id), [request.id]))


def _release(id: int) -> Task:
    return Task(f"release request {id}", lambda app: answer.take_up(app, id), [id])


def may_begin(waiting: Sequence[OpenRequest], begun: Iterable[OpenRequest]) -> list[OpenRequest]:
    """Return the requests that need not wait for an earlier one; both lists are in the order of
    arrival.
    """
    found = list[OpenRequest]()
    changing = [request for request in begun if request.kind in CHANGING]
    at_work = {request.id for request in begun}
    for request in waiting:
        if request.id in at_work:
            continue
        if request.kind in CHANGING:
            if not changing:
                found.append(request)
            changing.append(request)
        elif all(_bare(request) != _bare(other) for other in changing):
            found.append(request)
    return found


def _bare(request: OpenRequest) -> str | None:
    """Return the name without schema, quotes and blanks, so that two spellings of a name are equal."""
    name = request.stream_table
    return name.rpartition(".")[2].strip().strip('"').lower() if name else None
