"""Worker threads of the leader, each with an application of its own: connections, locks, a Spark
session.

An application is opened when its worker is first needed, and remains open. The worker that became
free last is used first, so in a quiet database a few workers do all the work, and the others are
never opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock, Thread

from millstream.errors import MillstreamError
from millstream.observe import log
from millstream.service.app import App


@dataclass(frozen=True)
class Task:
    """A task for an application. It records its own errors; other exceptions are only logged."""

    name: str
    act: Callable[[App], None]
    ids: Sequence[int] = ()
    """The stream tables that it works on."""
    is_slow: bool = False


@dataclass(frozen=True)
class Finished:
    """A task that has ended, with or without an error."""

    task: Task
    seconds: float
    error: Exception | None = None


class Workers:
    """The workers, and the tasks that they have finished."""

    def __init__(
        self,
        name: str,
        open_app: Callable[[], App],
        finished: Callable[[], None],
        prepare: Callable[[App], None] = lambda app: None,
    ) -> None:
        """`prepare` is called before each task, by its worker."""
        self._name = name
        self._open = open_app
        self._prepare = prepare
        self._told = finished
        self._lock = Lock()
        self._workers = list[_Worker]()
        self._free = list[_Worker]()
        self._finished = SimpleQueue[Finished]()
        self.limit = 1

    @property
    def free(self) -> int:
        """The number of free workers."""
        return max(0, self.limit - len(self.running))

    @property
    def running(self) -> list[Task]:
        """The running tasks."""
        with self._lock:
            return [worker.task for worker in self._workers if worker.task is not None]

    def submit(self, task: Task) -> None:
        """Start a task; call it only if a worker is free."""
        with self._lock:
            worker = self._free.pop() if self._free else self._hire()
            worker.task = task
        worker.tasks.put(task)

    @property
    def has_finished(self) -> bool:
        """Return True if a task has ended that `finished` has not returned yet."""
        return not self._finished.empty()

    def finished(self) -> list[Finished]:
        """Return the tasks that have ended since the last call."""
        found = list[Finished]()
        while not self._finished.empty():
            found.append(self._finished.get())
        return found

    def wait(self, seconds: float) -> bool:
        """Wait for the running tasks; return False if some have not ended in time."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.running

    def hang_up(self) -> None:
        """Roll back the running tasks."""
        with self._lock:
            busy = [worker for worker in self._workers if worker.task is not None]
        for worker in busy:
            if worker.app is not None:
                worker.app.hang_up()

    def close(self) -> None:
        """End each worker after its task, and close its connections."""
        for worker in self._workers:
            worker.tasks.put(None)
        for worker in self._workers:
            worker.thread.join(1.0)

    def _hire(self) -> _Worker:
        worker = _Worker(
            f"{self._name} {len(self._workers) + 1}", self._open, self._prepare, self._done
        )
        self._workers.append(worker)
        worker.thread.start()
        return worker

    def _done(self, worker: _Worker, finished: Finished) -> None:
        with self._lock:
            worker.task = None
            self._free.append(worker)
        self._finished.put(finished)
        self._told()


class _Worker:
    def __init__(
        self,
        name: str,
        open_app: Callable[[], App],
        prepare: Callable[[App], None],
        done: Callable[[_Worker, Finished], None],
    ) -> None:
        self.tasks = SimpleQueue[Task | None]()
        self.task: Task | None = None
        self.app: App | None = None
        self._open = open_app
        self._prepare = prepare
        self._done = done
        self.thread = Thread(target=self._work, name=name, daemon=True)

    def _work(self) -> None:
        while (task := self.tasks.get()) is not None:
            began = time.monotonic()
            error = self._do(task)
            self._done(self, Finished(task, time.monotonic() - began, error))
        if self.app is not None:
            self.app.close()

    def _do(self, task: Task) -> Exception | None:
        try:
            if self.app is None:
                self.app = self._open()
            self._prepare(self.app)
            task.act(self.app)
        except MillstreamError as error:
            log.warning(
                "work not done",
                task=task.name,
                code=error.code,
                message=error.message,
                detail=error.detail,
            )
            return error
        except Exception as error:
            # An error of one task must not end the service; the next task may succeed.
            log.error("work not done", task=task.name, reason=f"{type(error).__name__}: {error}")
            return error
        return None
