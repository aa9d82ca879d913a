"""Decode many rows of pgoutput at once: find the offset of each value, column by column.

    message       I <relation> N <columns>  t 0005 hello  n  u  t 0001 7
    walk          kind, start and length of column 1 in every row, then of column 2, ...

A column is an array of offsets. A message that does not end with its last value is an error.

The *images* of a change are the offsets of the captured columns. An update has two, the old and the new row;
a large value that did not change is not sent again, and is taken from the old row. If the old
row was not sent in full (replica identity other than FULL), or a captured column is missing or has another type,
the images are incomplete, and the transaction is marked with an X instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.capture.wal.messages.protocol import RelationMessage
from millstream.capture.wal.messages.rows import Bytes, Offsets, Rows, big_endian, take_ranges
from millstream.catalog.sources import Source
from millstream.errors import WalNotUnderstood

Flags: TypeAlias = npt.NDArray[np.bool_]
Action: TypeAlias = Literal["I", "D"]

_T, _N, _U = b"tnu"
_NEW, _OLD = b"NO"
NULL = -1
"""The length of a value that is NULL."""


@dataclass(frozen=True)
class DecodedImages:
    """Images of rows of one source, as offsets into the batch."""

    rows: Rows
    starts: Offsets
    """Offset of each value, by row and captured column."""
    lengths: Offsets
    action: Action


@dataclass
class Decoded:
    """The changes of one source in a batch."""

    images: list[DecodedImages] = field(default_factory=list)
    marked: set[int] = field(default_factory=set)
    """Transactions with incomplete images."""

    def add(self, rows: Rows, values: Values, action: Action) -> None:
        """Add images of these rows, if there are any."""
        if len(rows.letters):
            self.images.append(DecodedImages(rows, values.starts, values.lengths, action))

    def mark(self, transactions: Offsets) -> None:
        """Mark these transactions."""
        self.marked |= {int(each) for each in np.unique(transactions)}


def decode(rows: Rows, source: Source) -> Decoded:
    """Decode rows of one source and its partitions."""
    found = Decoded()
    relids = rows.relids()
    for relid in np.unique(relids):
        for letter, read in _READ.items():
            chosen = np.flatnonzero((relids == relid) & (rows.letters == letter))
            if len(chosen):
                read(rows.at(chosen), _layout(rows, int(relid)), source, found)
    return found


def _layout(rows: Rows, relid: int) -> RelationMessage:
    layout = rows.layouts.get(relid)
    if layout is None:
        raise WalNotUnderstood.at(b"", f"rows of relation {relid} without a layout")
    return layout


# -- rows by their kind ----------------------------------------------------------------------


def _inserted(rows: Rows, layout: RelationMessage, source: Source, found: Decoded) -> None:
    new, end = walk(rows.data, rows.starts + 4, len(layout.columns), (_NEW,))
    _expect_end(rows, end)
    whole = _whole(rows, layout, source, found, [new])
    if whole is not None:
        found.add(rows, whole[0], "I")


def _deleted(rows: Rows, layout: RelationMessage, source: Source, found: Decoded) -> None:
    rows = _with_old(rows, found)
    old, end = walk(rows.data, rows.starts + 4, len(layout.columns), (_OLD,))
    _expect_end(rows, end)
    whole = _whole(rows, layout, source, found, [old])
    if whole is not None:
        found.add(rows, whole[0], "D")


def _updated(rows: Rows, layout: RelationMessage, source: Source, found: Decoded) -> None:
    rows = _with_old(rows, found)
    old, middle = walk(rows.data, rows.starts + 4, len(layout.columns), (_OLD,))
    new, end = walk(rows.data, middle, len(layout.columns), (_NEW,))
    _expect_end(rows, end)
    whole = _whole(rows, layout, source, found, [old, new.filled_from(old)])
    if whole is None:
        return
    went, came = whole
    changed = np.flatnonzero(~same(rows.data, went, came))
    found.add(rows.at(changed), went.at(changed), "D")
    found.add(rows.at(changed), came.at(changed), "I")


_READ = {b"I"[0]: _inserted, b"U"[0]: _updated, b"D"[0]: _deleted}


def _with_old(rows: Rows, found: Decoded) -> Rows:
    """Return the rows with a complete old row; mark the transactions of the others."""
    has_old = rows.data[rows.starts + 4] == _OLD
    found.mark(rows.transactions[~has_old])
    return rows if has_old.all() else rows.at(np.flatnonzero(has_old))


def _expect_end(rows: Rows, end: Offsets) -> None:
    if (end != rows.ends).any():
        row = int(np.flatnonzero(end != rows.ends)[0])
        message = bytes(rows.data[rows.starts[row] : rows.ends[row]])
        raise WalNotUnderstood.at(message, "it does not end where its values end")


# -- values ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Values:
    """Kinds, offsets and lengths of values, by row and column."""

    kinds: Bytes
    starts: Offsets
    lengths: Offsets

    def at(self, chosen: Offsets) -> Values:
        """Return the values of some of the rows."""
        return Values(self.kinds[chosen], self.starts[chosen], self.lengths[chosen])

    def of(self, columns: Sequence[int]) -> Values:
        """Return the values of some of the columns."""
        return Values(self.kinds[:, columns], self.starts[:, columns], self.lengths[:, columns])

    def filled_from(self, old: Values) -> Values:
        """Return these values, with those that were not sent taken from the old rows."""
        unsent = self.kinds == _U
        if not unsent.any():
            return self
        pairs = ((self.kinds, old.kinds), (self.starts, old.starts), (self.lengths, old.lengths))
        return Values(*(np.where(unsent, theirs, ours) for ours, theirs in pairs))


def walk(data: Bytes, at: Offsets, columns: int, letters: Sequence[int]) -> tuple[Values, Offsets]:
    """Decode the tuples at these offsets, each after its letter; return their values and where they
    end.
    """
    count = big_endian(data, at + 1, 2)
    if not np.isin(data[at], letters).all() or (count != columns).any():
        raise WalNotUnderstood.at(
            b"", f"a row that is not of {columns} columns as its relation says"
        )
    shape = (len(at), columns)
    found = Values(np.empty(shape, np.uint8), np.empty(shape, np.int64), np.empty(shape, np.int64))
    at = at + 3
    for column in range(columns):
        kind = data[at]
        is_sent = kind == _T
        if not (is_sent | (kind == _N) | (kind == _U)).all():
            raise WalNotUnderstood.at(bytes(data[at[0] : at[0] + 40]), "a value of unknown kind")
        length = np.where(is_sent, big_endian(data, at + 1, 4), NULL)
        found.kinds[:, column], found.starts[:, column], found.lengths[:, column] = (
            kind,
            at + 5,
            length,
        )
        at = at + np.where(is_sent, 5 + length, 1)
    return found, at


def _whole(
    rows: Rows, layout: RelationMessage, source: Source, found: Decoded, sides: Sequence[Values]
) -> list[Values] | None:
    """Return the captured columns of each side; mark the transactions and return None if they are
    incomplete.
    """
    captured = _captured(layout, source)
    if captured is None:
        found.mark(rows.transactions)
        return None
    chosen = [side.of(captured) for side in sides]
    if any((side.kinds == _U).any() for side in chosen):
        found.mark(rows.transactions)
        return None
    return chosen


def _captured(layout: RelationMessage, source: Source) -> list[int] | None:
    """Return the positions of the captured columns in these rows; None if one is missing or has
    another type.
    """
    places = {(column.name, column.type_oid): place for place, column in enumerate(layout.columns)}
    found = [places.get((column.name, column.type_oid)) for column in source.columns]
    return None if None in found else [place for place in found if place is not None]


def same(data: Bytes, one: Values, other: Values) -> Flags:
    """Return which rows are equal on both sides, byte for byte."""
    alike: Flags = (one.lengths == other.lengths).all(axis=1)
    chosen = np.flatnonzero(alike)
    # Values at the same offset need no comparison.
    lengths = np.where(one.starts == other.starts, 0, np.maximum(one.lengths, 0))[chosen]
    left, right = (take_ranges(data, side.starts[chosen], lengths) for side in (one, other))
    row = np.repeat(chosen, lengths.sum(axis=1))
    alike[row[left != right]] = False
    return alike
