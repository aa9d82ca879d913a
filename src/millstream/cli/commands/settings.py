"""`millstream settings`: list every setting with its value and origin; set and reset those of the
database.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from millstream.cli.entry_points import opened
from millstream.cli.options import AsJson, Dsn
from millstream.cli.output import err, out, print_json, table
from millstream.errors import BadSetting

if TYPE_CHECKING:
    from millstream.service.live_settings import SettingInfo

EXAMPLE = "millstream settings set max_concurrent_refreshes 8"

COLUMNS = ("setting", "value", "default", "from", "meaning")


class Action(StrEnum):
    """What to do with a setting of the database."""

    SET = "set"
    RESET = "reset"


def run(
    ctx: typer.Context,
    dsn: Dsn,
    action: Annotated[
        Action | None,
        typer.Argument(help="Store a setting in the database, or remove it. Without it: list all."),
    ] = None,
    name: Annotated[str | None, typer.Argument(help="The setting.")] = None,
    value: Annotated[
        str | None, typer.Argument(help="Its value, such as 8, 30s, 100MB or true.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the settings, or set and reset those that the database stores.

    A value comes from the environment, the settings file, the database, or is the default; the
    first that gives one wins. The list shows what a process with the environment and file of this
    command gets. A running service takes over a change of the database at once.
    """
    _check(action, name, value)
    with opened(ctx, dsn, "reading the settings") as client:
        if action is Action.SET:
            client.set_setting(name or "", value or "")
        elif action is Action.RESET:
            client.reset_setting(name or "")
        found = [one for one in client.settings() if name in (None, one.name)]
    if as_json:
        print_json(found)
        return
    out().print(table("", COLUMNS, [_row(one) for one in found]))
    for one in found:
        if one.note:
            err().print(f"{one.name}: {one.note}", style="yellow", markup=False, soft_wrap=True)


def _check(action: Action | None, name: str | None, value: str | None) -> None:
    """Raise unless the arguments are those of the action."""
    if action is Action.SET and (name is None or value is None):
        raise BadSetting(
            "a name and a value are needed",
            hint="Such as: millstream settings set cdc_mode trigger",
        )
    if action is Action.RESET and (name is None or value is not None):
        raise BadSetting(
            "only a name is needed", hint="Such as: millstream settings reset cdc_mode"
        )


def _row(one: SettingInfo) -> tuple[str | Text, ...]:
    return (
        one.name,
        one.value,
        one.default,
        Text(one.origin, style="" if one.origin == "default" else "bold"),
        one.meaning,
    )
