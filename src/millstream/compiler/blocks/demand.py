"""Plan the messages that demand sends along a join tree, and their order.

Changed rows send their join keys to their neighbours; the rows found there send theirs on, never
back the way they came. A message i -> j needs every message into i except j's own, so on a tree
they can be ordered; with n inputs there are at most 2(n-1).

    orders - customers - regions,  orders changed:    orders -> customers, customers -> regions

A message is planned only if some input on the sender's side holds rows to begin with (a *holder*).

A left, full or mark join (EXISTS, IN) asks whether a row has a match, so the optional side must be
complete for each row of the other. A second round completes it: over such an edge the rows found by
the first round are sent back, and the rows that this finds are sent on, away from where they came.

    customers left join orders,  orders changed:    orders -> customers, then customers -> orders, for completeness

The end of the module says by which columns all this looks up rows of inner blocks, whose state then
gets an index for them: `lookups`, `crossing_lookups`, and for the rows of certain groups
`group_seed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from millstream.algebra.block import Block, Branch, Edge, GroupedBlock, Input, RecursionBlock
from millstream.algebra.expr import Expr, Ref
from millstream.algebra.table import BlockRows

# Sender, receiver, and the round in which it is sent.
Id = tuple[str, str, int]


@dataclass(frozen=True)
class KeyMessage:
    """Keys of the sender's rows, to be looked up in the receiver; without columns, the receiver is
    read in full.
    """

    sender: str
    receiver: str
    sender_columns: tuple[str, ...]
    receiver_columns: tuple[str, ...]
    after: tuple[Id, ...]
    """The messages whose rows this one passes on."""
    round: int = 1
    behind: frozenset[str] = frozenset()
    """All inputs on the sender's side; a change of any of them makes a message without columns read
    everything.
    """
    spreads: bool = False
    """Receiver rows can appear without a match, so if the sender is read in full, read the receiver
    in full too.
    """
    nulls: tuple[int, ...] = ()
    """The positions of the columns in which NULLs are equal."""

    @property
    def id(self) -> Id:
        return self.sender, self.receiver, self.round

    def __str__(self) -> str:
        keys = ", ".join(self.receiver_columns) or "everything"
        return (
            f"{self.sender} -> {self.receiver} by {keys}{' (completes)' if self.round == 2 else ''}"
        )


def messages(
    branch: Branch, holders: Iterable[str], sizes: Mapping[str, float] = MappingProxyType({})
) -> list[KeyMessage]:
    """Return all messages in the order of sending; `holders` are the inputs that have rows to begin
    with.

    `sizes` are the sizes of the inputs' tables, as far as they are known.
    """
    plan = _MessagePlan(branch, set(holders))
    ends = [
        (name, plan.other(edge, name)) for edge in branch.edges for name in (edge.left, edge.right)
    ]
    # Messages that find few rows go first, small tables before large ones: rows without a match
    # there send nothing on.
    ends.sort(key=lambda pair: (not plan.finds_few(*pair), sizes.get(pair[1], inf)))
    for sender, receiver in ends:
        plan.plan_first(sender, receiver)
    for sender, receiver in ends:
        plan.plan_second(sender, receiver)
    return list(plan.sent.values())


class _MessagePlan:
    """The messages planned so far, each after those that it depends on."""

    def __init__(self, branch: Branch, holders: set[str]) -> None:
        self.branch = branch
        self.holders = holders
        self.sent: dict[Id, KeyMessage] = {}

    def other(self, edge: Edge, sender: str) -> str:
        return edge.right if sender == edge.left else edge.left

    def finds_few(self, sender: str, receiver: str) -> bool:
        """True if a row of the sender needs a match that passes a filter, here or further on."""
        if not self._edge(sender, receiver).reduces(sender):
            return False
        further = [name for name in self._neighbours(receiver) if name != sender]
        found = self.branch.input(receiver)
        return bool(found.filters or found.temporal_filters) or any(
            self.finds_few(receiver, name) for name in further
        )

    def plan_first(self, sender: str, receiver: str) -> bool:
        """Plan sender -> receiver after the messages it depends on; return False if no holder is
        behind it.
        """
        if (sender, receiver, 1) in self.sent:
            return True
        behind = [name for name in self._neighbours(sender) if name != receiver]
        after = tuple((name, sender, 1) for name in behind if self.plan_first(name, sender))
        if not after and sender not in self.holders:
            return False
        self._send(sender, receiver, after, 1)
        return True

    def plan_second(self, sender: str, receiver: str) -> bool:
        """Plan sender -> receiver in the second round; return False if it has nothing to complete."""
        if (sender, receiver, 2) in self.sent:
            return True
        behind = [name for name in self._neighbours(sender) if name != receiver]
        after = tuple((name, sender, 2) for name in behind if self.plan_second(name, sender))
        if self._edge(sender, receiver).complete(sender) and (receiver, sender, 1) in self.sent:
            after = ((receiver, sender, 1), *after)
        if not after:
            return False
        self._send(sender, receiver, after, 2)
        return True

    def _send(self, sender: str, receiver: str, after: tuple[Id, ...], round_: int) -> None:
        edge = self._edge(sender, receiver)
        ends = edge.ends(sender)
        assert ends is not None
        spreads = edge.complete(receiver)
        behind = self._behind(sender, receiver)
        message = KeyMessage(
            sender, receiver, ends[1], ends[2], after, round_, behind, spreads, edge.nulls
        )
        self.sent[message.id] = message

    def _behind(self, sender: str, receiver: str) -> frozenset[str]:
        others = [name for name in self._neighbours(sender) if name != receiver]
        return frozenset({sender}).union(*(self._behind(name, sender) for name in others))

    def _neighbours(self, name: str) -> list[str]:
        return [ends[0] for edge in self.branch.edges if (ends := edge.ends(name))]

    def _edge(self, one: str, other: str) -> Edge:
        for edge in self.branch.edges:
            if {edge.left, edge.right} == {one, other}:
                return edge
        raise ValueError(f"no edge joins {one} to {other}")


def group_seed(
    branch: Branch, keys: Iterable[str]
) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """Return the input in which rows of groups are looked up, with pairs (key, leaf); None if no
    key is a leaf.

    It is the input with the most of the keys; from its rows, messages find those of the other
    inputs.
    """
    by_input = dict[str, list[tuple[str, str]]]()
    wanted = set(keys)
    for name, ref in branch.sources:
        if name in wanted and ref is not None and ref.alias not in branch.null_extended:
            by_input.setdefault(ref.alias, []).append((name, ref.column))
    if not by_input:
        return None
    best = max(by_input, key=lambda name: len(by_input[name]))
    return best, tuple(by_input[best])


def lookups(blocks: Sequence[Block]) -> Iterator[tuple[Block, Input, tuple[str, ...]]]:
    """Yield the leaf columns by which rows of inner blocks are looked up, once each: (block, its
    reader, columns).
    """
    seen = set[tuple[int, tuple[Expr, ...]]]()
    for block in blocks:
        for one, columns in (
            found for branch in block.branches for found in _lookup_columns(block, branch)
        ):
            exprs = tuple(one.leaf(column).expr.substitute(_bare(one)) for column in columns)
            table = one.scan.table
            if not isinstance(table, BlockRows) or not columns or (table.block, exprs) in seen:
                continue
            if any(
                ref.alias != one.scan.alias
                for column in columns
                for ref in one.leaf(column).expr.refs
            ):
                # The rows of a function have no index.
                continue
            seen.add((table.block, exprs))
            yield blocks[table.block], one, columns


def crossing_lookups(blocks: Sequence[Block]) -> Iterator[tuple[Block, Input, Expr]]:
    """Yield the values by which rows that cross a temporal filter are found: (block, its reader,
    expression).
    """
    for one in (one for block in blocks for one in block.inputs()):
        table, bounds = (
            one.scan.table,
            [temporal_filters.bound for temporal_filters in one.temporal_filters],
        )
        if isinstance(table, BlockRows) and None not in bounds:
            values = dict.fromkeys(bound.value for bound in bounds if bound is not None)
            yield from ((blocks[table.block], one, value) for value in values)


def _lookup_columns(block: Block, branch: Branch) -> Iterator[tuple[Input, tuple[str, ...]]]:
    """Yield the columns by which inputs are looked up: along edges, and for recomputed groups."""
    for edge in branch.edges:
        yield from ((branch.input(name), columns) for name, columns in edge.both())
    if isinstance(block, GroupedBlock) and block.head.consolidated:
        seed = group_seed(branch, [key.name for key in block.head.keys])
        if seed is not None:
            yield branch.input(seed[0]), tuple(leaf for _, leaf in seed[1])
    for term in block.terms if isinstance(block, RecursionBlock) else ():
        seed = (
            group_seed(branch, [name for _, name in term.found_by])
            if branch in term.block.branches
            else None
        )
        if seed is not None:
            yield branch.input(seed[0]), tuple(leaf for _, leaf in seed[1])


def _bare(one: Input) -> dict[Ref, Expr]:
    return {ref: Expr.ref("", ref.column) for ref in one.scan.columns}
