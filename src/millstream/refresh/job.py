"""What a refresh is asked for, and how it ends: a stream table with its plan, and its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.algebra.block import Block, Input
from millstream.catalog import sources
from millstream.catalog.definition_digests import Digests
from millstream.catalog.stream_tables import StreamTable
from millstream.errors import MillstreamError
from millstream.refresh.report import RefreshReport
from millstream.store.names import BlockNames


@dataclass(frozen=True)
class Job:
    """A stream table to refresh, with its plan; without blocks where it is planned only if something has changed."""

    table: StreamTable
    blocks: tuple[Block, ...]
    full: bool = False
    digests: Digests = field(default_factory=dict)
    shapes: tuple[str, ...] = ()
    """Of its blocks; known in a cut."""
    upstreams: frozenset[int] = frozenset()
    """The stream tables that it reads, by their ids."""
    whole: str = ""
    """The reason code where its rows must be computed whole, whatever has changed."""
    recorded: frozenset[int] = frozenset()
    """The tables that it reads by the catalog, where it has not been planned."""

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
        """Does its query ask what time it is?"""
        return any(block.reads_clock for block in self.blocks)

    def reads(self) -> Iterator[Input]:
        """Its inputs that are tables."""
        return (one for block in self.blocks for one in block.inputs() if one.scan.table.stored)

    @property
    def names(self) -> BlockNames:
        return BlockNames(self.table.id, self.table.schema_name, self.table.name, shapes=self.shapes)


@dataclass(frozen=True)
class Gap:
    """Why a table could not be refreshed yet: its plan, and capture of these sources, must be made again."""

    relids: tuple[int, ...]
    what: str
    guard: bool = False
    """The guard of the stream table itself is not as it should be."""


@dataclass(frozen=True)
class Unplanned:
    """A table that was not refreshed yet, since it must be planned: something that it reads has changed."""


@dataclass(frozen=True)
class Postponed:
    """A table that was not refreshed yet, since one that it reads must be tried again first."""


Outcome = RefreshReport | MillstreamError | Gap | Postponed | Unplanned
# By id of a stream table: its sources as they are recorded.
Read = Mapping[int, Sequence[sources.Source]]


def reads(job: Job) -> set[int]:
    """The tables that it reads."""
    if not job.blocks:
        return set(job.recorded)
    return {one.scan.table.oid for one in job.reads()}


def levels(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs, given in the order of their dependencies, in groups of which none reads another."""
    found = list[list[Job]]()
    for job in jobs:
        if not found or job.upstreams & {other.table.id for other in found[-1]}:
            found.append([])
        found[-1].append(job)
    return found
