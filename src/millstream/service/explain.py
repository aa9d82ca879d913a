"""The verb explain: how a stream table is maintained: blocks, demand, Spark SQL, figures of the
last refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.algebra.block import Block, Branch, GroupedBlock, Input, PairsBlock
from millstream.algebra.choice import Choice
from millstream.algebra.relation import Scan
from millstream.algebra.table import BlockRows, Clock, ConstantRows
from millstream.catalog import history
from millstream.catalog.history import HistoryEntry
from millstream.catalog.stream_tables import StreamTable
from millstream.compiler.blocks.choices import printed_choices
from millstream.compiler.blocks.demand import group_seed, messages
from millstream.compiler.lowering import printed
from millstream.compiler.server.plan_query import QueryPlan
from millstream.postgres.composed import Printed, all_of, in_parentheses
from millstream.refresh.reads.read_sql import UNCHANGED_FILTERS, FilterVersions, all_sql
from millstream.service.app import App
from millstream.service.verb import verb
from millstream.store.names import from_item


@dataclass(frozen=True)
class Explanation:
    """The parts of the text that `explain` prints."""

    table: StreamTable
    planned: QueryPlan
    last: HistoryEntry | None

    def __str__(self) -> str:
        blocks = self.planned.blocks
        parts = [
            ("Stream table", _heading(self.table)),
            ("Query, as PostgreSQL reads it", self.table.canonical_query),
            ("Session settings", _settings(self.table.settings)),
            ("Declared immutable", "\n".join(self.table.assume_immutable)),
            ("Relation", str(self.planned.relation)),
            ("Blocks", "\n".join(str(one) for one in self.planned.blocks)),
            ("Choices", printed_choices(blocks)),
            ("Demand", _of_each(blocks, _demand)),
            ("Leaf reads (PostgreSQL)", _of_each(blocks, _leaves)),
            ("Spark SQL", _of_each(blocks, _spark)),
            ("Last refresh", _last(self.last)),
        ]
        shown = [(title, text) for title, text in parts if text]
        return "\n\n".join(f"{title}\n{_indented(text)}" for title, text in shown)

    def as_dict(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        blocks = self.planned.blocks
        return {
            "name": self.table.name, "schema": self.table.schema_name, "query": self.table.query,
            "canonical_query": self.table.canonical_query, "settings": dict(self.table.settings),
            "assume_immutable": list(self.table.assume_immutable),
            "relation": str(self.planned.relation),
            "blocks": [str(one) for one in self.planned.blocks], "demand": _of_each(blocks, _demand).splitlines(),
            "choices": [_as_dict(block, choice) for block in blocks for choice in block.choices],
            "leaf_reads": _of_each(blocks, _leaves).splitlines(), "spark_sql": _of_each(blocks, _spark),
            "last_refresh": self.last.as_dict() if self.last else None,
        }  # fmt: skip


def _as_dict(block: Block, choice: Choice) -> dict[str, str]:
    return {"block": block.name, "what": choice.what, "why": choice.why}


@verb
def explain(app: App, name: str) -> Explanation:
    """Explain the plan of a stream table, and the cost of its last refresh that had changes."""
    table = app.named(name)
    recent = history.recent(app.conn, table.id, 50)
    last = next((entry for entry in recent if entry.action not in ("NO_DATA", "SKIP")), None)
    return Explanation(table, app.plan(table), last)


def _heading(table: StreamTable) -> str:
    frontier = (
        f"frontier {table.frontier}, data of {table.data_timestamp}"
        if table.frontier
        else "not filled yet"
    )
    return f"{table.schema_name}.{table.name}  {table.status}, {table.refresh_mode}, every {table.schedule}\n{frontier}"


def _settings(settings: Mapping[str, str]) -> str:
    return "\n".join(f"{name} = {value}" for name, value in settings.items())


def _of_each(blocks: Sequence[Block], told: Callable[[Block], str]) -> str:
    """Return the text of each block, with its name if there are several."""
    if len(blocks) == 1:
        return told(blocks[0])
    return "\n".join(f"{block.name}\n{_indented(told(block))}" for block in blocks)


def _demand(block: Block) -> str:
    if isinstance(block, PairsBlock):
        return _demand_of_pairs(block)
    lines = []
    for branch in block.branches:
        for one in branch.inputs:
            sent = (
                ", ".join(str(message) for message in messages(branch, [one.name]))
                or "nothing else is read"
            )
            lines.append(f"a change of {one.scan.alias} ({one.name}): {sent}")
            by = {
                scan.table.title
                for temporal_filters in one.temporal_filters
                for scan in temporal_filters.by
            }
            crossing = f"the rows of {one.scan.alias} ({one.name}) that cross its temporal filter"
            lines += [f"a change of {title}: {crossing}" for title in sorted(by)]
        if isinstance(block, GroupedBlock) and block.head.consolidated and block.head.keys:
            lines.append(_recompute(block, branch))
    return "\n".join(lines)


def _demand_of_pairs(block: PairsBlock) -> str:
    tables = [one.scan.alias for one in block.inputs()]
    by = f"the rows with which {block.condition} is true"
    sent = zip(tables, reversed(tables), strict=True)
    return "\n".join(f"a change of {table}: {by}, of {read}" for table, read in sent)


def _recompute(block: GroupedBlock, branch: Branch) -> str:
    seed = group_seed(branch, [key.name for key in block.head.keys])
    if seed is None:
        return "a group that must be recomputed: everything is read"
    name, pairs = seed
    return f"a group that must be recomputed: {name} by {', '.join(leaf for _, leaf in pairs)}, then along the joins"


def _leaves(block: Block) -> str:
    return "\n".join(f"{one.name}  {_read(one)}" for one in block.inputs())


def _read(one: Input) -> str:
    query = all_sql(one, Printed(_relation(one.scan)), before=1, filter_versions=_moved(one))
    return query.as_string()


def _moved(one: Input) -> FilterVersions:
    """Return its temporal filters, with equal versions."""
    scans = {
        scan.alias: scan
        for temporal_filters in one.temporal_filters
        for scan in temporal_filters.by
    }
    if not one.temporal_filters:
        return UNCHANGED_FILTERS
    condition = all_of(
        in_parentheses(Printed(temporal_filter.condition.sql))
        for temporal_filter in one.temporal_filters
    )
    items = [from_item(scan, Printed(_relation(scan))) for scan in scans.values()]
    return FilterVersions(tuple(items), condition, condition)


def _spark(block: Block) -> str:
    if isinstance(block, PairsBlock):
        return "none: PostgreSQL joins the changed rows by the condition"
    return printed(block, {one.name: _view(one) for one in block.inputs()})


def _view(one: Input) -> str:
    """Return an example of a view name in Spark."""
    return (
        f"values_{one.name}"
        if isinstance(one.scan.table, ConstantRows | Clock)
        else _relation(one.scan).split(".")[-1].strip('"').replace(" ", "_")
    )


def _relation(scan: Scan) -> str:
    table = scan.table
    return f"block_{table.block}" if isinstance(table, BlockRows) else table.relation


def _last(entry: HistoryEntry | None) -> str:
    if entry is None:
        return "none yet"
    lines = [
        f"{entry.action} ({entry.reason}) at {entry.started_at}",
        f"{entry.rows_read} rows read, {entry.spark_jobs} Spark jobs",
    ]
    lines += [f"+{entry.rows_inserted} ~{entry.rows_updated} -{entry.rows_deleted}"]
    lines += [
        f"{one['alias']}: {one['rows']} rows by {one['path']} {one.get('why', '')}".rstrip()
        for one in entry.inputs
    ]
    lines += ["  ".join(f"{name} {ms:.0f} ms" for name, ms in entry.phases.items())]
    return "\n".join(lines)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
