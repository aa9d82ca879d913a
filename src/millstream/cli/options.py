"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

Dsn: TypeAlias = Annotated[
    str,
    typer.Option(
        "--dsn", envvar="MILLSTREAM_DSN", help="The database, such as postgresql://user@host/name."
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Direct: TypeAlias = Annotated[
    bool,
    typer.Option("--direct", help="Do the work in this process, even if a service could do it."),
]
Name: TypeAlias = Annotated[str, typer.Argument(help="The stream table: a name, or schema.name.")]
SessionSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A session setting for its query, such as TimeZone=Europe/Berlin; repeat it for more. "
        "Default: as the connection has it.",
    ),
]


def settings_of(options: Sequence[str] | None) -> dict[str, str] | None:
    """Return session settings by name; None if no option gives one."""
    pairs = [option.partition("=") for option in options or ()]
    if any(not separator for _, separator, _ in pairs):
        raise typer.BadParameter("write --set NAME=VALUE, such as --set TimeZone=Europe/Berlin")
    return {name.strip(): value.strip() for name, _, value in pairs} or None
