"""Work out which messages demand sends along a join tree, and in which order.

Changed rows send their join keys to their neighbours; the rows found there send theirs on, never
back the way they came. A message i -> j needs every message into i except j's own, so on a tree
they can be ordered; with n inputs there are at most 2(n-1).

    orders - customers - regions,  orders changed:    orders -> customers, customers -> regions

Only sides that have something to say speak: a message is planned where some input behind it holds
rows to begin with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.plan.block import Branch


@dataclass(frozen=True)
class Message:
    """Keys of `sender`'s rows, looked up in `receiver`; without columns, everything is asked for."""

    sender: str
    receiver: str
    sender_columns: tuple[str, ...]
    receiver_columns: tuple[str, ...]
    after: tuple[tuple[str, str], ...]
    """The messages (sender, receiver) whose rows it passes on."""

    def __str__(self) -> str:
        keys = ", ".join(self.receiver_columns) or "everything"
        return f"{self.sender} -> {self.receiver} by {keys}"


def messages(branch: Branch, holders: Iterable[str]) -> list[Message]:
    """All messages when `holders` are the inputs that have rows to begin with, in order of sending."""
    starts, sent = set(holders), dict[tuple[str, str], Message]()
    for edge in branch.edges:
        for sender in (edge.left, edge.right):
            _send(branch, sender, _other(branch, edge.left, edge.right, sender), starts, sent)
    return list(sent.values())


def _other(branch: Branch, left: str, right: str, sender: str) -> str:
    return right if sender == left else left


def _send(branch: Branch, sender: str, receiver: str, starts: set[str], sent: dict[tuple[str, str], Message]) -> bool:
    """Plan sender -> receiver after all it depends on; False if nothing stands behind it."""
    if (sender, receiver) in sent:
        return True
    behind = [name for name in _neighbours(branch, sender) if name != receiver]
    heard = tuple((name, sender) for name in behind if _send(branch, name, sender, starts, sent))
    if not heard and sender not in starts:
        return False
    ours, theirs = _columns(branch, sender, receiver)
    sent[sender, receiver] = Message(sender, receiver, ours, theirs, heard)
    return True


def _neighbours(branch: Branch, name: str) -> list[str]:
    return [ends[0] for edge in branch.edges if (ends := edge.ends(name))]


def _columns(branch: Branch, sender: str, receiver: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for edge in branch.edges:
        ends = edge.ends(sender)
        if ends and ends[0] == receiver:
            return ends[1], ends[2]
    raise ValueError(f"no edge ties {sender} to {receiver}")


def seed_of_groups(branch: Branch, keys: Iterable[str]) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """The input through which groups are found by key: (input, ((key, leaf), ...)); None if there is none."""
    by_input = dict[str, list[tuple[str, str]]]()
    wanted = set(keys)
    for name, ref in branch.sources:
        if name in wanted and ref is not None:
            by_input.setdefault(ref.alias, []).append((name, ref.column))
    if not by_input:
        return None
    best = max(by_input, key=lambda name: len(by_input[name]))
    return best, tuple(by_input[best])
