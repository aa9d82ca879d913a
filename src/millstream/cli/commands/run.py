"""`millstream run`: the service, which keeps every stream table fresh."""

from __future__ import annotations

import faulthandler
import logging
import signal
from contextlib import suppress
from io import UnsupportedOperation
from typing import Annotated

import typer

from millstream.cli.command import AS_JSON, EVENTS
from millstream.cli.options import AsJson, Dsn
from millstream.observe import log

EXAMPLE = "millstream run"


def run(
    ctx: typer.Context,
    dsn: Dsn,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Log warnings and errors only.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Keep every stream table of a database fresh, until SIGTERM or Ctrl-C.

    One process per database works; others are standbys, and one of them takes over within five
    seconds. It waits for the server, at the start and whenever it is lost. SIGHUP reads the
    settings again, SIGUSR1 prints where each thread is. The log goes to stderr; with --json each
    line is a document.
    """
    # Imported here, so that `millstream --help` does not wait for Spark's and Arrow's modules.
    from millstream.service.run.process import Process
    from millstream.settings import Settings

    with suppress(UnsupportedOperation):
        # Raised if stderr has no file descriptor.
        faulthandler.register(signal.SIGUSR1)
    # This command shows the whole log, not only warnings and errors.
    log.hide(ctx.meta[EVENTS])
    handler = log.show(_level(ctx, quiet=quiet), as_json=as_json or ctx.meta[AS_JSON])
    try:
        Process(dsn, Settings).run()
    finally:
        log.hide(handler)


def _level(ctx: typer.Context, *, quiet: bool) -> int:
    if quiet:
        return logging.WARNING
    verbose = ctx.parent is not None and ctx.parent.params.get("verbose")
    return logging.DEBUG if verbose else logging.INFO
