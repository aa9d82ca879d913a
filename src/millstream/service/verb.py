"""Check and repair the connection around each verb.

The server may be restarted, or end the session, at any time. A refresh is then applied either in
full or not at all. The caller gets ServerDown, which is retryable, and the next call connects
again.

Each verb first checks the catalog: it exists, has the version of this Millstream, was created in
this database, and contains no code of other roles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import psycopg

from millstream.catalog.installation import install
from millstream.errors import JavaEnded, LockNotHad, MillstreamError, ServerDown
from millstream.postgres import failures
from millstream.postgres.connection import Connection
from millstream.postgres.table_locks import holders
from millstream.service.app import LOCK_PATIENCE, App

P = ParamSpec("P")
T = TypeVar("T")


def verb(act: Callable[Concatenate[App, P], T]) -> Callable[Concatenate[App, P], T]:
    """Make a function of the application a verb."""
    return _checked(act, install.require)


def verb_anywhere(act: Callable[Concatenate[App, P], T]) -> Callable[Concatenate[App, P], T]:
    """Make a function a verb that also works with a catalog from another database."""
    return _checked(act, install.require_version)


def _checked(
    act: Callable[Concatenate[App, P], T], check: Callable[[Connection], None]
) -> Callable[Concatenate[App, P], T]:
    @functools.wraps(act)
    def acting(app: App, /, *args: P.args, **kwargs: P.kwargs) -> T:
        app.reach()
        try:
            check(app.conn)
            return act(app, *args, **kwargs)
        except psycopg.errors.LockNotAvailable as error:
            raise LockNotHad.somewhere(LOCK_PATIENCE, holders(app.conn)) from error
        except psycopg.Error as error:
            if app.conn.closed:
                raise ServerDown.lost(str(error)) from error
            raise failures.translate_error(error) from error
        except MillstreamError:
            raise
        except Exception as error:
            if how := app.ended_by(error):
                raise JavaEnded.while_working(how) from error
            raise

    return acting
