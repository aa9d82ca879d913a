"""Cut a query's Relation into blocks, innermost first.

Each stateful operator below the top becomes a block of its own, and what stands above reads that block like a
table; two that mean the same are one block. What stands above the topmost aggregate becomes outputs and HAVING,
computed by PostgreSQL while applying; what stands below it is flattened into branches, and every expression is placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.algebra.block import Block
from millstream.algebra.relation import Relation
from millstream.algebra.types import Column
from millstream.compiler.blocks.chain import Chain
from millstream.compiler.blocks.group_block import peel
from millstream.compiler.blocks.stateless_block import build_stateless_block
from millstream.compiler.server.questions import PlanningServer


def split_into_blocks(relation: Relation, columns: Sequence[Column], server: PlanningServer) -> tuple[Block, ...]:
    """The blocks of a query, innermost first; the last one's outputs are the stream table."""
    chain = Chain(server)
    peeled = peel(relation)
    if peeled.aggregate is None:
        below = chain.cleared(relation)
        last = chain.placed(
            below, below.columns, lambda flats: build_stateless_block(below.columns, flats, columns, server)
        )
    else:
        last = chain.grouped(peeled, chain.over_tables(peeled.aggregate), columns)
    return (*chain.blocks, replace(last, position=len(chain.blocks)))
