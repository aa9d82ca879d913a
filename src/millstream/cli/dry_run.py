"""The output of `create --dry-run`: the query's columns, blocks and sources, or the refusal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from millstream.cli.exit_codes import exit_code
from millstream.cli.output import out, print_error, print_json, table

if TYPE_CHECKING:
    from millstream.service.define.validate import Validation


def show(found: Validation, *, as_json: bool) -> None:
    """Print a validation; a refused query ends the command with the exit code of `create`."""
    if as_json:
        print_json(found)
    elif found.refusal:
        print_error(found.refusal, as_json=False)
    else:
        _show_accepted(found)
    if found.refusal:
        raise typer.Exit(exit_code(found.refusal))


def _show_accepted(found: Validation) -> None:
    print_ = out().print
    print_("The query can be maintained; nothing is created.")
    print_(
        table(
            "Columns", ("column", "type"), [(column.name, column.type) for column in found.columns]
        )
    )
    print_(f"Rows are identified by: {found.key}.", markup=False)
    print_(table("Sources", ("source", "columns read", "capture", "why not WAL"), _sources(found)))
    print_(
        table("Blocks", ("block", "stored besides the rows of the stream table"), _blocks(found))
    )
    for block in found.blocks:
        print_(block.plan, markup=False, soft_wrap=True)
    for notice in found.notices:
        print_(notice, style="yellow", markup=False)


def _sources(found: Validation) -> Sequence[Sequence[str]]:
    return [
        (source.name, ", ".join(source.columns), source.capture, source.reason or "-")
        for source in found.sources
    ]


def _blocks(found: Validation) -> Sequence[Sequence[str]]:
    return [(block.name, block.materializes or "nothing") for block in found.blocks]
