"""The functions that commands call: the Python API, or doubles in tests.

The API is imported late, so that `millstream --help` does not wait for Spark's and Arrow's modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from millstream.cli.progress import Waiting

if TYPE_CHECKING:
    from millstream.bundled.server import Server
    from millstream.client import Millstream
    from millstream.service.monitoring.doctor import Check
    from millstream.service.monitoring.overview import Overview
    from millstream.service.requests.ask import ServiceClient


@dataclass(frozen=True)
class Doors:
    """The functions of Millstream that commands use."""

    connect: Callable[..., AbstractContextManager[Millstream]]
    embedded: Callable[[], AbstractContextManager[Server]]
    doctor: Callable[[str | None], list[Check]]
    overviews: Callable[[str], AbstractContextManager[Callable[[], Overview]]]
    asking: Callable[[str], AbstractContextManager[ServiceClient | None]] = lambda dsn: nullcontext(
        None
    )


def _asking(dsn: str) -> AbstractContextManager[ServiceClient | None]:
    from millstream.service.requests.ask import asking

    return asking(dsn)


def _connect(dsn: str, **options: Any) -> AbstractContextManager[Millstream]:
    import millstream

    return millstream.connect(dsn, **options)


def _embedded() -> AbstractContextManager[Server]:
    import millstream

    return millstream.embedded()


def _doctor(dsn: str | None) -> list[Check]:
    from millstream.service.monitoring.doctor import doctor

    return doctor(dsn)


@contextmanager
def _overviews(dsn: str) -> Iterator[Callable[[], Overview]]:
    from millstream.service.monitoring import overview

    with overview.watching(dsn) as conn:
        yield lambda: overview.look(conn)


REAL = Doors(
    connect=_connect, embedded=_embedded, doctor=_doctor, overviews=_overviews, asking=_asking
)


@contextmanager
def opened(ctx: typer.Context, dsn: str, doing: str) -> Iterator[Millstream]:
    """Open a client for a command, with a progress bar while the command works."""
    doors: Doors = ctx.obj
    with Waiting(doing) as waiting, doors.connect(dsn, progress=waiting.report) as client:
        yield client


@contextmanager
def served(
    ctx: typer.Context, dsn: str, doing: str, *, direct: bool
) -> Iterator[Millstream | ServiceClient]:
    """Yield a client of the database's service; if none runs, or with `direct`, a client that does
    the work in this process.
    """
    doors: Doors = ctx.obj
    if direct:
        with opened(ctx, dsn, doing) as client:
            yield client
        return
    with doors.asking(dsn) as service:
        if service is not None:
            with Waiting(doing):
                yield service
            return
    with opened(ctx, dsn, doing) as client:
        yield client
