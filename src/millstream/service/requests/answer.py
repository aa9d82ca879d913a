"""Execute the requests that roles have made by SQL.

    waiting(conn) -> for each: execute(app, id)          take_up(app): after a takeover, or a lost connection

A request is executed with the rights of the role that made it. The service refuses what that role
could not do itself: it must be an operator or the owner (`millstream.may_ask`), a stream table that
it creates belongs to it, and PostgreSQL decides what it may read and where it may create tables.
Names are looked up along its search_path.

A service may end at any moment, also between the work and the answer. The next one executes the
request again:

    refresh, verify, validate, explain_query, alter   are repeated, which does no harm
    create                                            skipped if such a stream table was created after the request began
    drop                                              skipped if no stream table of that name is older than the request

A request that was begun three times without an answer fails, since it may be the cause of the
service's end.

An answer contains only what the role may see: roles other than the owner of the stream table get no
rows, and only the code of an error, because its text may quote values of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.algebra.table import quoted
from millstream.catalog import requests, stream_tables
from millstream.catalog.definitions import rights
from millstream.catalog.requests import AskersRights, Document, Request, waiting
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import (
    BadSetting,
    Busy,
    Deposed,
    InternalError,
    JavaEnded,
    LockNotHad,
    MillstreamError,
    NoRights,
    NoSuchStreamTable,
    NotFilled,
    NotYet,
    RequestInterrupted,
    StillUsed,
)
from millstream.observe import log
from millstream.observe.failpoint import failpoint
from millstream.refresh.report import RefreshReport
from millstream.scheduler.cadence import Cadence
from millstream.scheduler.dependencies import recorded_graph
from millstream.service import refresh
from millstream.service.api_boundary import KINDS, check, translate_error
from millstream.service.app import App
from millstream.service.define import alter, create, drop, validate
from millstream.service.define.session import AskingSession, check_assumed, checked
from millstream.service.verification import verify

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["execute", "prune", "take_up", "waiting"]

MOST_TRIES = 3
# Errors in these verbs are errors of the asker's query.
_OF_OWN_QUERY = ("create", "create_or_replace", "validate", "explain_query")
_ALTERABLE = ("schedule", "refresh_mode", "status", "query", "cdc_mode", "settings")
_NONE = AskersRights(may_ask=False, owns=False, administers=False)
_TEXTS = ("schedule", "refresh_mode", "status", "query", "cdc_mode", "owner")
# Errors whose texts quote no row.
_TELLS_NO_VALUE = (
    BadSetting,
    Busy,
    JavaEnded,
    LockNotHad,
    NoRights,
    NoSuchStreamTable,
    NotFilled,
    NotYet,
    StillUsed,
)


def execute(app: App, id: int) -> None:
    """Execute a request, and record the answer.

    Raise if the connection or the epoch is lost; the caller must then release the request. If this
    service itself works on the stream table, the request is WAITING again, as if it had not been
    begun.
    """
    app.reach()
    with _answering(app):
        request = requests.start(app.conn, id)
    if request is None:
        return
    failpoint("request_begun")
    asked = _OpenedRequest(app, request, None, _NONE)
    try:
        asked = _look_up(asked)
        result = _VERBS[request.kind](asked)
    except Exception as error:
        told = translate_error(error)
        if isinstance(told, Deposed) or app.conn.closed:
            raise
        if isinstance(told, Busy) and _is_held_here(asked):
            with _answering(app):
                requests.put_back(app.conn, request.id)
            return
        if isinstance(told, InternalError):
            log.error("a request failed", id=request.id, kind=request.kind, reason=str(told))
        _answer(app, request, error=_error(asked, told))
    else:
        failpoint("request_done")
        _answer(app, request, result=result)


def take_up(app: App, id: int | None = None) -> None:
    """Set requests that were begun and not answered to WAITING again; fail those that were begun
    too often.

    With an id, only this one, whose execution has raised an error.
    """
    app.reach()
    with _answering(app):
        requests.take_up(app.conn, MOST_TRIES, id)
        for request in requests.interrupted(app.conn, id):
            error = RequestInterrupted.of(request.kind, request.stream_table or "a query")
            log.error(
                "a request is given up",
                id=request.id,
                kind=request.kind,
                table=request.stream_table,
            )
            requests.fail(app.conn, request.id, error.as_dict())


def prune(app: App) -> None:
    """Remove answered requests that are older than the history."""
    app.reach()
    with _answering(app):
        requests.prune(app.conn, app.settings.history_retention)


def _is_held_here(asked: _OpenedRequest) -> bool:
    """Return True unless another process has locked a stream table of the graph that a request
    concerns.
    """
    id = asked.table.id if asked.table else 0
    graph = next(
        (ids for ids in recorded_graph(asked.app.conn).components() if id in ids), frozenset[int]()
    )
    return asked.app.mutex.holders(sorted(graph)).keys() <= asked.app.held


@contextmanager
def _answering(app: App) -> Iterator[None]:
    """Open a transaction of the leader; raise Deposed if this process no longer leads."""
    with app.conn.transaction():
        app.hold_epoch()
        yield


def _answer(
    app: App, request: Request, *, result: Document | None = None, error: Document | None = None
) -> None:
    with _answering(app):
        if error is not None:
            requests.fail(app.conn, request.id, error)
        else:
            requests.succeed(app.conn, request.id, result or {})
    outcome = str(error["code"]) if error is not None else "done"
    log.info(
        "request answered",
        id=request.id,
        kind=request.kind,
        by=request.requested_by,
        outcome=outcome,
    )


# -- rights ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OpenedRequest:
    """A request and its stream table."""

    app: App
    request: Request
    table: StreamTable | None
    rights: AskersRights

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, converted to the types of the verbs' parameters."""
        given = dict(self.request.arguments)
        for name in _TEXTS:
            check(name, given.get(name), KINDS["str | None"])
        return given

    @property
    def owner(self) -> str:
        """The owner of a created stream table: the role that asks.

        The catalog's owner may name another role.
        """
        owner = self.arguments.get("owner")
        if owner is None:
            return self.request.requested_by
        if not self.rights.administers:
            grant = f"GRANT {quoted(owner)} TO {quoted(self.request.requested_by)}; then SET ROLE {quoted(owner)};"
            raise NoRights.to(
                f'ask for role "{owner}"', role=self.request.requested_by, grant=grant
            )
        return str(owner)

    @property
    def session(self) -> AskingSession:
        """The session that asks. A request of an older catalog does not tell its settings."""
        return AskingSession(self.request.search_path, self.arguments.get("session"))

    def existing(self) -> StreamTable:
        """Return the stream table, which must exist."""
        if self.table is None:
            raise NoSuchStreamTable.named(self.request.stream_table or "")
        return self.table


def _look_up(asked: _OpenedRequest) -> _OpenedRequest:
    """Find the stream table and check the rights; raise NoRights if the role may not ask for it."""
    app, request = asked.app, asked.request
    # Rights depend on the names of the arguments.
    if not isinstance(request.arguments, dict):
        raise BadSetting.of("arguments", request.arguments, "a JSON object of names and values")
    app.reach()
    target = requests.target(app.conn, request) if request.stream_table else None
    found = requests.rights(app.conn, request, target.relid if target else None)
    table = stream_tables.get(app.conn, target.id) if target else None
    # An earlier try has dropped it, so it has no owner. The role's rights were checked then.
    is_dropped = request.kind == "drop" and request.tries > 0 and target is None
    if found is None or not (found.may_ask or is_dropped):
        what = " ".join(filter(None, (request.kind, request.stream_table)))
        grant = f"GRANT millstream_operator TO {quoted(request.requested_by)};"
        raise NoRights.to(f"ask for this: {what}", role=request.requested_by, grant=grant)
    return _OpenedRequest(app, request, table, found)


def _error(asked: _OpenedRequest, error: MillstreamError) -> Document:
    """Return an error as the role that asked may see it."""
    if (
        asked.request.kind in _OF_OWN_QUERY
        or asked.table is None
        or asked.rights.owns
        or asked.rights.administers
        or isinstance(error, _TELLS_NO_VALUE)
    ):
        return error.as_dict()
    return {
        "code": error.code,
        "message": f'the request to {asked.request.kind} "{asked.request.stream_table}" failed',
        "detail": "The text of the error may quote values of rows: only the owner of the stream table sees it.",
        "hint": "Ask its owner to repeat the request, or to see millstream.status().",
    }


def _report(asked: _OpenedRequest, report: RefreshReport) -> dict[str, Any]:
    """Return a report as the role that asked may see it."""
    shown: dict[str, Any] = report.as_dict()
    if not asked.rights.administers:
        # Errors of upstreams, which may belong to other roles.
        shown["held_back_by"] = [{**one, "error": None} for one in shown["held_back_by"]]
    return shown


# -- verbs -----------------------------------------------------------------------------------


def _create(asked: _OpenedRequest) -> Document:
    made = asked.table
    if made is not None and _was_made_for(asked, made):
        report = None
        if asked.arguments.get("initialize", True) and made.frontier is None:
            report = _report(
                asked, refresh.refresh(asked.app, made.qualified, initiated_by="INITIAL")
            )
        return {"name": made.qualified, "action": "created", "report": report}
    return _create_new(asked)


def _was_made_for(asked: _OpenedRequest, table: StreamTable) -> bool:
    """Return True if an earlier try of this request has created the stream table."""
    owner = rights.owners(asked.app.conn, [table.relid or 0]).get(table.relid or 0)
    same = (table.query, owner) == (asked.arguments["query"], asked.owner)
    return asked.request.tries > 0 and same and table.created_at >= asked.request.begun_at


def _create_new(asked: _OpenedRequest) -> Document:
    app, request, given = asked.app, asked.request, asked.arguments
    new = requests.new_name(app.conn, request, asked.owner)
    if new.schema is None or not new.schema_exists:
        raise BadSetting.of("name", request.stream_table, "a name in a schema that exists")
    if not new.may_create:
        grant = f"GRANT CREATE ON SCHEMA {quoted(new.schema)} TO {quoted(asked.owner)};"
        raise NoRights.to(f"create tables in schema {new.schema}", role=asked.owner, grant=grant)
    name = quoted(new.schema, new.name)
    report = create.create(
        app,
        name,
        given["query"],
        schedule=given["schedule"],
        refresh_mode=given["refresh_mode"],
        initialize=given.get("initialize", True),
        cdc_mode=given.get("cdc_mode"),
        owner=asked.owner,
        settings=given.get("settings"),
        assume_immutable=given.get("assume_immutable"),
        session=asked.session,
    )
    return {"name": name, "action": "created", "report": _report(asked, report) if report else None}


def _create_or_replace(asked: _OpenedRequest) -> Document:
    table, given = asked.table, asked.arguments
    if table is None:
        return _create_new(asked)
    if not asked.rights.owns:
        reason = "It belongs to another role."
        grant = f"ALTER TABLE {table.qualified} OWNER TO {quoted(asked.request.requested_by)};"
        raise NoRights.to(
            f"replace {table.qualified}",
            role=asked.request.requested_by,
            grant=grant,
            reason=reason,
        )
    shortest = asked.app.settings.min_schedule
    wanted = {
        "query": (given["query"].strip(), table.query.strip()),
        "schedule": (str(Cadence.parse(given["schedule"], shortest=shortest)), table.schedule),
        "refresh_mode": (given["refresh_mode"], table.refresh_mode),
        "cdc_mode": (given.get("cdc_mode", table.cdc_mode), table.cdc_mode),
    }
    check_assumed(asked.app, table, asked.session, given.get("assume_immutable"))
    changed: dict[str, Any] = {name: new for name, (new, old) in wanted.items() if new != old}
    if settings := _changed_settings(asked, table):
        changed["settings"] = settings
    if changed:
        alter.alter(asked.app, table.qualified, **changed, session=asked.session)
    return {
        "name": table.qualified,
        "action": "altered" if changed else "unchanged",
        "changed": sorted(changed),
    }


def _changed_settings(asked: _OpenedRequest, table: StreamTable) -> dict[str, str]:
    """Return the given settings that are recorded with another value."""
    given = checked(asked.app, asked.session, asked.arguments.get("settings"))
    return {
        name: value
        for name, value in given.items()
        if name in table.settings and table.settings[name] != value
    }


def _alter(asked: _OpenedRequest) -> Document:
    table = asked.existing()
    changed = {name: asked.arguments[name] for name in _ALTERABLE if name in asked.arguments}
    report = alter.alter(asked.app, table.qualified, **changed, session=asked.session)
    shown = _report(asked, report) if report else None
    return {
        "name": table.qualified,
        "action": "altered",
        "changed": sorted(changed),
        "report": shown,
    }


def _drop(asked: _OpenedRequest) -> Document:
    table = asked.table
    # If it was created since, another request has created it.
    if asked.request.tries > 0 and (table is None or table.created_at > asked.request.begun_at):
        return {"name": asked.request.stream_table, "action": "dropped"}
    drop.drop(asked.app, asked.existing().qualified, cascade=bool(asked.arguments.get("cascade")))
    return {"name": asked.existing().qualified, "action": "dropped"}


def _refresh(asked: _OpenedRequest) -> Document:
    full = bool(asked.arguments.get("full"))
    return _report(asked, refresh.refresh(asked.app, asked.existing().qualified, full=full))


def _verify(asked: _OpenedRequest) -> Document:
    shown = verify.verify(asked.app, asked.existing().qualified).as_dict()
    return shown if asked.rights.owns or asked.rights.administers else {**shown, "sample": []}


def _validate(asked: _OpenedRequest) -> Document:
    return _validation(asked).as_dict()


def _validation(asked: _OpenedRequest) -> validate.Validation:
    given = asked.arguments
    return validate.validate(
        asked.app,
        given["query"],
        asked.owner,
        given.get("cdc_mode"),
        settings=given.get("settings"),
        session=asked.session,
    )


def _explain_query(asked: _OpenedRequest) -> Document:
    found = _validation(asked)
    if found.refusal is not None:
        raise found.refusal
    blocks = [f"{block.plan}\nstored: {block.materializes or 'nothing'}" for block in found.blocks]
    return {"key": found.key, "plan": "\n\n".join(blocks), "sources": found.as_dict()["sources"]}


_VERBS: dict[str, Callable[[_OpenedRequest], Document]] = {
    "create": _create,
    "create_or_replace": _create_or_replace,
    "alter": _alter,
    "drop": _drop,
    "refresh": _refresh,
    "verify": _verify,
    "validate": _validate,
    "explain_query": _explain_query,
}
