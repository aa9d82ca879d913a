"""Options and arguments that several commands share."""

from __future__ import annotations

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
