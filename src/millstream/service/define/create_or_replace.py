"""The verb create_or_replace: create a stream table, or change the existing one to this definition."""

from __future__ import annotations

from millstream.catalog.definitions import rights
from millstream.errors import BadSetting, NoSuchStreamTable
from millstream.refresh.report import RefreshReport
from millstream.service.app import App
from millstream.service.define.alter import alter
from millstream.service.define.create import create
from millstream.service.define.session import OWN, check_assumed
from millstream.service.verb import verb


@verb
def create_or_replace(
    app: App,
    name: str,
    query: str,
    *,
    schedule: str = "1m",
    refresh_mode: str = "AUTO",
    initialize: bool = True,
    cdc_mode: str | None = None,
    owner: str | None = None,
    settings: object = None,
    assume_immutable: object = None,
) -> RefreshReport | None:
    """Create a stream table, or alter the existing one where it differs; return the report of the
    refresh, if any.

    An existing stream table keeps its owner, and `initialize` has no effect on it.
    """
    try:
        table = app.named(name)
    except NoSuchStreamTable:
        return create(
            app, name, query, schedule=schedule, refresh_mode=refresh_mode, initialize=initialize, cdc_mode=cdc_mode,
            owner=owner, settings=settings, assume_immutable=assume_immutable,
        )  # fmt: skip
    present = rights.owners(app.conn, [table.relid or 0]).get(table.relid or 0)
    if owner is not None and present is not None and rights.owner_for(app.conn, owner) != present:
        raise BadSetting.of(
            "owner", owner, f'"{present}", the owner of the stream table that is there'
        )
    check_assumed(app, table, OWN, assume_immutable)
    return alter(
        app, name, query=query, schedule=schedule, refresh_mode=refresh_mode, cdc_mode=cdc_mode,
        settings=settings,
    )  # fmt: skip
