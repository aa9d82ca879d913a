"""Split a query's Relation into blocks, innermost first.

Each stateful operator below the top becomes a block of its own, which the operators above read like
a table; equal operators share a block. Filters and projections above the topmost aggregate become
its outputs and HAVING, which PostgreSQL computes while applying. The operators below it are
flattened into branches, and every expression is placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.algebra.block import Block
from millstream.algebra.relation import Relation
from millstream.algebra.types import Column
from millstream.compiler.blocks.chain import Chain
from millstream.compiler.blocks.filter_groups import filter_groups_first
from millstream.compiler.blocks.flatten import FlatBranch
from millstream.compiler.blocks.group_block import peel
from millstream.compiler.blocks.stateless_block import build_stateless_block
from millstream.compiler.refusal import accepted
from millstream.compiler.server.questions import PlanningServer
from millstream.errors import Unsupported


def split_into_blocks(
    relation: Relation, columns: Sequence[Column], server: PlanningServer
) -> tuple[Block, ...]:
    """Return the blocks of a query, innermost first; the outputs of the last are the columns of the
    stream table.
    """
    chain = Chain(server)
    relation = filter_groups_first(relation, server)
    peeled = peel(relation)
    if peeled.aggregate is None:
        below = chain.cleared(relation)

        def make(flats: Sequence[FlatBranch]) -> Block | Unsupported:
            return build_stateless_block(below.columns, flats, columns, server)

        last = chain.build_block(below, below.columns, make)
    else:
        last = chain.build_group_block(peeled, chain.over_tables(peeled.aggregate), columns)
    return (*chain.blocks, replace(accepted(last), position=len(chain.blocks)))
