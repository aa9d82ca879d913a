"""The verb alter: change the query, the schedule, the refresh mode or the status."""

from __future__ import annotations

from typing import get_args

from millstream.capture.transition import transitions
from millstream.catalog import sources, stream_tables
from millstream.catalog.stream_tables import RefreshMode
from millstream.errors import BadSetting
from millstream.postgres import notifications
from millstream.refresh.report import RefreshReport
from millstream.scheduler.cadence import Cadence
from millstream.service.app import App
from millstream.service.define.redefine import redefine
from millstream.service.define.session import OWN, AskingSession, checked
from millstream.service.verb import verb
from millstream.settings import CDC_MODES


@verb
def alter(
    app: App,
    name: str,
    *,
    schedule: str | None = None,
    refresh_mode: str | None = None,
    status: str | None = None,
    query: str | None = None,
    cdc_mode: str | None = None,
    settings: object = None,
    session: AskingSession = OWN,
) -> RefreshReport | None:
    """Change the given properties, query and settings first; return the report of the refresh with
    these.
    """
    if cdc_mode not in (None, *CDC_MODES):
        raise BadSetting.of("cdc_mode", cdc_mode, "trigger, auto or wal")
    if refresh_mode is not None and refresh_mode not in get_args(RefreshMode):
        raise BadSetting.of("refresh_mode", refresh_mode, "AUTO, DIFFERENTIAL or FULL")
    if status not in (None, "ACTIVE", "SUSPENDED"):
        raise BadSetting.of("status", status, "ACTIVE or SUSPENDED")
    cadence = (
        str(Cadence.parse(schedule, shortest=app.settings.min_schedule))
        if schedule is not None
        else None
    )
    table = app.named(name)
    if cdc_mode == "wal":
        transitions.require(app, sources.read_by(app.conn, table.id))
    report = None
    if query is not None or settings is not None:
        report = redefine(app, table, query, checked(app, session, settings), session)
    with app.conn.transaction():
        app.hold_epoch()
        stream_tables.change(
            app.conn,
            table.id,
            schedule=cadence,
            refresh_mode=refresh_mode,
            status=status,
            cdc_mode=cdc_mode,
        )
        if status == "ACTIVE" and table.status in ("SUSPENDED", "ERROR"):
            notifications.alert(
                app.conn,
                "resumed",
                stream_table=table.qualified,
                former_status=table.status,
                by="alter",
            )
    return report
