"""Requests are taken in the order in which they came, as far as that matters.

Those that change what there is (create, alter, drop) are executed one after the other: the second may be about what the
first has made. Others are executed beside them, unless one of those before them is about the same stream table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from millstream.catalog.requests import Request
from millstream.postgres.connection import Connection
from millstream.service import requests
from millstream.service.app import App
from millstream.service.run.workers import Finished, Task, Workers

CHANGING = ("create", "create_or_replace", "alter", "drop")
# Beside the workers that refresh by schedule: an answer does not wait for these.
WORKERS = 2
TAKE_UP, PRUNE = "take up requests", "prune requests"
# Seconds between two looks without being told, and between two removals of old requests.
LOOK_AGAIN, PRUNE_EVERY = 15.0, 3600.0


class RequestDesk:
    """The requests that are being executed, and workers for them."""

    def __init__(
        self, open_app: Callable[[], App], wake: Callable[[], None], prepare: Callable[[App], None] = lambda app: None
    ) -> None:
        self.workers = Workers("request", open_app, wake, prepare)
        self.workers.limit = WORKERS
        self._begun = dict[int, Request]()
        self._is_open = False
        self._looked_at = self._pruned_at = float("-inf")

    def open(self) -> None:
        """First take up what another process has left."""
        self.workers.submit(Task(TAKE_UP, requests.take_up))

    def is_due(self) -> bool:
        """Return True if it is to be looked without having been told: something is done, or a while has passed."""
        return self.workers.has_finished or time.monotonic() - self._looked_at > LOOK_AGAIN

    def look(self, conn: Connection) -> None:
        """Begin the requests that may begin."""
        self._looked_at = time.monotonic()
        for finished in self.workers.finished():
            self._take_in(finished)
        if not self._is_open:
            return
        if self._looked_at - self._pruned_at > PRUNE_EVERY and self.workers.free:
            self._pruned_at = self._looked_at
            self.workers.submit(Task(PRUNE, requests.prune))
        for request in may_begin(requests.waiting(conn), self._begun.values()):
            if self.workers.free:
                self._begin(request)

    def _take_in(self, finished: Finished) -> None:
        for id in finished.task.ids:
            self._begun.pop(id, None)
        if finished.task.name == TAKE_UP:
            self._is_open = finished.error is None
            if finished.error is not None:
                self.open()

    def _begin(self, request: Request) -> None:
        self._begun[request.id] = request
        name = f"request {request.id}: {request.kind}"
        self.workers.submit(Task(name, lambda app: requests.execute(app, request), [request.id]))


def may_begin(waiting: Sequence[Request], begun: Iterable[Request]) -> list[Request]:
    """Return the requests that need not wait for one before them; each list in the order in which they came."""
    found = list[Request]()
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


def _bare(request: Request) -> str | None:
    """Return the name without its schema and quotes: two spellings of a name are never taken for two."""
    name = request.stream_table
    return name.rpartition(".")[2].strip('"').lower() if name else None
