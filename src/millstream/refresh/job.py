"""A stream table to refresh with its plan (`Job`), and how its refresh ends (`Outcome`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.algebra.block import Block, Input
from millstream.algebra.table import SourceTable
from millstream.catalog import sources
from millstream.catalog.definitions.definition_digests import Digests
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import MillstreamError
from millstream.refresh.report import RefreshReport
from millstream.store.names import BlockNames


@dataclass(frozen=True)
class Job:
    """A stream table to refresh, with its plan.

    It has no blocks if the table is planned only when something it reads has changed.
    """

    table: StreamTable
    blocks: tuple[Block, ...]
    full: bool = False
    digests: Digests = field(default_factory=dict)
    shapes: tuple[str, ...] = ()
    """The shape of the staging tables of each block; known in a cut."""
    upstreams: frozenset[int] = frozenset()
    """The ids of the stream tables that it reads."""
    recompute_reason: str = ""
    """The reason code if its rows must be recomputed in full, whatever has changed."""
    recorded_relids: frozenset[int] = frozenset()
    """For a job without blocks: the oids of the tables that it reads according to the catalog."""

    @property
    def block(self) -> Block:
        """The block whose outputs are the stream table."""
        return self.blocks[-1]

    @property
    def row_triggers(self) -> str:
        """The triggers on its table that may change a row before it is written, as a list of names."""
        return self.digests.get(("triggers", self.table.relid or 0)) or ""

    @property
    def clock(self) -> bool:
        """True if the query reads the current time."""
        return any(block.reads_clock for block in self.blocks)

    def source_reads(self) -> Iterator[tuple[SourceTable, Input]]:
        """Yield the source tables that its blocks read, each with the input that reads it."""
        for input_ in (input_ for block in self.blocks for input_ in block.inputs()):
            if isinstance(input_.scan.table, SourceTable):
                yield input_.scan.table, input_

    @property
    def names(self) -> BlockNames:
        """The names of the tables that store its blocks."""
        return BlockNames(
            self.table.id, self.table.schema_name, self.table.name, shapes=self.shapes
        )


@dataclass(frozen=True)
class Gap:
    """Why a stream table could not be refreshed yet: it must be planned, and these sources
    captured, again.
    """

    relids: tuple[int, ...]
    what: str
    guard: bool = False
    """True if the write guard of the stream table itself is not as the setting says."""
    is_renamed: bool = False
    """True if the table of the stream table itself has another name."""


@dataclass(frozen=True)
class Unplanned:
    """A stream table that was not refreshed yet: something that it reads has changed, so it must be
    planned first.
    """


@dataclass(frozen=True)
class Postponed:
    """A stream table that was not refreshed yet: one that it reads must be retried first."""


Outcome = RefreshReport | MillstreamError | Gap | Postponed | Unplanned
# By id of a stream table: the sources that the catalog records for it.
SourcesByTable = Mapping[int, Sequence[sources.Source]]


def relids_read(job: Job) -> set[int]:
    """Return the oids of the tables that a job reads."""
    if not job.blocks:
        return set(job.recorded_relids)
    return {table.oid for table, _ in job.source_reads()}


def levels(jobs: Sequence[Job]) -> list[list[Job]]:
    """Split jobs, listed in the order of their dependencies, into runs in which no job reads
    another.
    """
    runs = list[list[Job]]()
    for job in jobs:
        if not runs or job.upstreams & {earlier.table.id for earlier in runs[-1]}:
            runs.append([])
        runs[-1].append(job)
    return runs
