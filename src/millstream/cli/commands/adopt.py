"""`millstream adopt`: make a catalog that was restored or copied into this database work here."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.entry_points import opened
from millstream.cli.options import AsJson, Dsn
from millstream.cli.output import out, print_json

EXAMPLE = "millstream adopt --dry-run"


def run(
    ctx: typer.Context,
    dsn: Dsn,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            "--forget",
            help="Remove this stream table from the catalog and keep its table. May be repeated.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be adopted.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Adopt stream tables after pg_restore, a copy of the database, or pg_upgrade.

    Tables are found by name; their columns, key and Millstream's comment are compared. Capture is
    set up again, and each stream table is brought up to date by difference. What cannot be adopted
    is listed and left alone.
    """
    with opened(ctx, dsn, "adopting") as client:
        found = client.adopt(forget=forget or (), dry_run=dry_run)
    if as_json:
        print_json(found.as_dict())
        return
    verb = "would be adopted" if dry_run else "adopted"
    if not (found.adopted or found.forgotten or found.unresolved):
        out().print("There is nothing to adopt: the catalog was created in this database.")
    for name in found.adopted:
        out().print(f"{name}  {verb}")
    for name in found.forgotten:
        out().print(
            f"{name}  {'would be forgotten' if dry_run else 'forgotten'}, its table is kept"
        )
    for name, reason in found.unresolved:
        out().print(f"{name}  cannot be adopted: {reason}")
