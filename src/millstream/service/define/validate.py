"""The verb validate: describe the stream table that `create` would make of a query, or the error
that it would raise.

The query is planned as `create` plans it, in transactions that are rolled back: nothing is created,
and Spark is not used. A refusal is returned, with its position in the query; a transient error is
raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import psycopg

from millstream.algebra.block import AggregateBlock, AggregateHead, Block, WindowBlock
from millstream.algebra.expr import Ref
from millstream.algebra.table import SourceTable
from millstream.capture.transition import transitions
from millstream.catalog import sources, stream_tables
from millstream.catalog.definitions import rights
from millstream.catalog.sources import Source
from millstream.compiler.server.plan_query import QueryPlan
from millstream.errors import BadSetting, MillstreamError
from millstream.large_stack import on_large_stack
from millstream.postgres.failures import translate_error
from millstream.scheduler.cadence import Cadence
from millstream.service.app import App
from millstream.service.define.create import as_sources, with_key
from millstream.service.define.session import OWN, AskingSession, Pinned, assumed, checked, plan
from millstream.service.verb import verb
from millstream.settings import CDC_MODES


@dataclass(frozen=True)
class OutputColumn:
    """A column that the stream table would have."""

    name: str
    type: str


@dataclass(frozen=True)
class BlockSummary:
    """A block of the plan, and which of its rows are stored in addition to the stream table."""

    name: str
    materializes: str
    """Empty if it stores nothing."""
    plan: str
    """The block as `explain` prints it."""


@dataclass(frozen=True)
class SourceCapture:
    """A source that the query reads, and how its changes would be captured."""

    name: str
    columns: tuple[str, ...]
    """Those that the query uses: the others are not captured."""
    capture: Literal["TRIGGER", "WAL"]
    reason: str = ""
    """Why not from WAL."""


@dataclass(frozen=True)
class Validation:
    """What `create` would make of a query, or the error that it would raise."""

    query: str
    refusal: MillstreamError | None = None
    columns: tuple[OutputColumn, ...] = ()
    key: str = ""
    blocks: tuple[BlockSummary, ...] = ()
    sources: tuple[SourceCapture, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the query can be maintained."""
        return self.refusal is None

    @property
    def position(self) -> int | None:
        """The position of the refused construct in the query, in characters from 1."""
        return self.refusal.facts.get("position") if self.refusal else None

    def as_dict(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        return {
            "ok": self.ok, "query": self.query, "error": self._error(), "key": self.key,
            "columns": [asdict(column) for column in self.columns],
            "blocks": [asdict(block) for block in self.blocks],
            "sources": [asdict(source) for source in self.sources],
            "notices": list(self.notices),
        }  # fmt: skip

    def _error(self) -> dict[str, Any] | None:
        return {**self.refusal.as_dict(), "position": self.position} if self.refusal else None


@verb
def validate(
    app: App,
    query: str,
    owner: str | None = None,
    cdc_mode: str | None = None,
    *,
    schedule: str | None = None,
    settings: object = None,
    assume_immutable: object = None,
    session: AskingSession = OWN,
) -> Validation:
    """Plan a query for a role, by default the session's own, without creating anything."""
    if schedule is not None:
        Cadence.parse(schedule, shortest=app.settings.min_schedule)
    if cdc_mode not in (None, *CDC_MODES):
        raise BadSetting.of("cdc_mode", cdc_mode, "trigger, auto or wal")
    owner = rights.owner_for(app.conn, owner)
    try:
        functions = assumed(app, session, assume_immutable)
        pinned = Pinned(checked(app, session, settings), functions)
        planned = with_key(app, plan(app, query, owner, session, pinned))
        if (cdc_mode or app.settings.cdc_mode) == "wal":
            transitions.require(app, as_sources(app, planned))
    except psycopg.errors.InsufficientPrivilege as error:
        return Validation(query, translate_error(error))
    except MillstreamError as error:
        if error.retryable:
            raise
        return Validation(query, error)
    return _accepted(app, planned, cdc_mode or app.settings.cdc_mode)


@on_large_stack
def _accepted(app: App, planned: QueryPlan, cdc_mode: str) -> Validation:
    return Validation(
        planned.query,
        columns=tuple(
            OutputColumn(one.column.name, str(one.column.type)) for one in planned.block.outputs
        ),
        key=str(planned.block.key),
        blocks=tuple(
            BlockSummary(block.name, materialized(block), str(block)) for block in planned.blocks
        ),
        sources=_captures(app, planned, cdc_mode),
        notices=_notices(app, planned),
    )


# -- blocks ----------------------------------------------------------------------------------


def materialized(block: Block) -> str:
    """Return which rows of a block are stored in addition to the stream table; "" if none are."""
    match block:
        case WindowBlock(head=head):
            return f"the rows of each partition ({_keys(block, head)})"
        case AggregateBlock(head=head):
            return _state(block, head)
    return _ROWS[block.kind]


_ROWS = {
    "none": "",
    "limit": "the first rows in order",
    "bag": "the rows of the join",
    "set": "the rows of the recursion",
    "levels": "the rows of the recursion, each with its level",
}


def _state(block: Block, head: AggregateHead) -> str:
    return (
        f"the state of each group ({_keys(block, head)})" if head.keys else "the state of one group"
    )


def _keys(block: Block, head: AggregateHead) -> str:
    """Name the keys of the groups: by the expressions over the sources if every key is one, else by
    the output columns.
    """
    read = dict(block.branches[0].sources) if len(block.branches) == 1 else {}
    shown = {output.key: output.column.name for output in block.outputs if output.key}
    return ", ".join(
        _key(block, read.get(key.name), shown.get(key.name, key.name)) for key in head.keys
    )


def _key(block: Block, read: Ref | None, shown: str) -> str:
    inputs = {one.name: one for one in block.branches[0].inputs}
    # The mark of an EXISTS is a column of no input.
    if read is None or read.alias not in inputs:
        return shown
    one = inputs[read.alias]
    return str(one.leaf(read.column).expr) if isinstance(one.scan.table, SourceTable) else shown


# -- sources ---------------------------------------------------------------------------------


def _captures(app: App, planned: QueryPlan, cdc_mode: str) -> tuple[SourceCapture, ...]:
    tables = {source.relid: source for source in as_sources(app, planned)}
    return tuple(
        _capture(app, f"{table.schema}.{table.name}", columns, tables.get(oid), cdc_mode)
        for oid, (table, columns) in planned.sources().items()
    )


def _capture(
    app: App, name: str, columns: tuple[str, ...], source: Source | None, cdc_mode: str
) -> SourceCapture:
    why = _why_by_triggers(app, source, cdc_mode)
    return SourceCapture(name, columns, "TRIGGER" if why else "WAL", why)


def _why_by_triggers(app: App, source: Source | None, cdc_mode: str) -> str:
    """Return why a source would not be captured from WAL in the end; "" if it would."""
    if source is None:
        return "It is a stream table, read in the transaction that writes it."
    if cdc_mode == "trigger":
        return "The setting or parameter cdc_mode asks for trigger capture."
    known = sources.get(app.conn, source.relid)
    if known is not None and known.uses_wal:
        return ""
    return transitions.obstacle(app, source)


# -- notices ---------------------------------------------------------------------------------


def _notices(app: App, planned: QueryPlan) -> tuple[str, ...]:
    policies = rights.with_policies(app.conn, list(planned.sources()))
    return (*map(rights.note, policies.values()), *_of_rows(planned), *_of_upstreams(app, planned))


def _of_rows(planned: QueryPlan) -> Sequence[str]:
    notices = []
    if planned.reads_clock:
        notices.append(
            "It reads the current time: rows enter and leave without a change of a source."
        )
    if planned.block.key.kind == "row_id":
        notices.append("No columns are unique: the table gets one more column, __ms_row_id.")
    return notices


def _of_upstreams(app: App, planned: QueryPlan) -> Sequence[str]:
    read = stream_tables.get_all(app.conn, [upstream.id for upstream in planned.upstreams])
    names = ", ".join(sorted(table.qualified for table in read.values()))
    return (
        [f"It reads stream tables, which are refreshed in the same cut before it: {names}."]
        if names
        else []
    )
