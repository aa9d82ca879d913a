"""The messages of a batch in one array: a row is a place in it, and no value is an object of its own.

message, message, ...   zeros   <tab>\\N   <newline>1000<tab>I   <newline>1000<tab>D   ...
                                └─ what rows of its transactions are made of besides their values
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.capture.wal.messages.protocol import HEADER, RelationMessage

Places: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_TRUNCATE = b"T"[0]


@dataclass(frozen=True)
class Trailer:
    """What lies behind the messages of a batch: constants that go into the text of its rows, see `copy_text.py`."""

    null: int
    starts: Places
    """By transaction and action, I then D: how a row of it begins."""
    lengths: Places


@dataclass(frozen=True)
class Rows:
    """Messages of one batch, all under the same layouts, and the transaction each is of."""

    data: Bytes
    starts: Places
    """Behind each message's letter, and behind the transaction id if it has one."""
    ends: Places
    letters: Bytes
    transactions: Places
    layouts: Mapping[int, RelationMessage]
    trailer: Trailer

    def at(self, chosen: Places) -> Rows:
        """Some of them."""
        return replace(
            self,
            starts=self.starts[chosen],
            ends=self.ends[chosen],
            letters=self.letters[chosen],
            transactions=self.transactions[chosen],
        )

    def relids(self) -> Places:
        """The relation of each; not of a truncation, which may have several."""
        return big_endian(self.data, self.starts, 4)

    def truncated(self) -> list[tuple[int, int]]:
        """Every (transaction, relation) of which there is a truncation here."""
        found = []
        for row in np.flatnonzero(self.letters == _TRUNCATE):
            relids = bytes(self.data[self.starts[row] + 5 : self.ends[row]])
            found += [(int(self.transactions[row]), int(relid)) for relid in np.frombuffer(relids, ">u4")]
        return found

    def changes(self) -> Rows:
        """Without truncations."""
        chosen = np.flatnonzero(self.letters != _TRUNCATE)
        return self if len(chosen) == len(self.letters) else self.at(chosen)


def lay_out(
    messages: Sequence[bytes],
    relation_at: Places,
    transactions: Places,
    layouts: Mapping[int, RelationMessage],
    xids: Sequence[int],
) -> Rows:
    """Lay messages out in one array, and behind them how rows of these transactions begin."""
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    ends = np.cumsum(lengths)
    first = ends - lengths
    begins = [b"\n%d\t%c\tl" % (xid, action) for xid in xids for action in b"ID"]
    # Some zeros between: a look behind the last value finds something.
    data = np.frombuffer(bytearray().join([*messages, bytes(8), b"\t\\N", *begins]), np.uint8)
    null = int(lengths.sum()) + 8
    sizes = np.fromiter(map(len, begins), np.int64, len(begins))
    trailer = Trailer(null, null + 3 + np.cumsum(sizes) - sizes, sizes)
    return Rows(data, first + relation_at, ends, data[first + HEADER], transactions, layouts, trailer)


def big_endian(data: Bytes, at: Places, size: int) -> Places:
    """The numbers that stand at these places."""
    number = data[at].astype(np.int64)
    for place in range(1, size):
        number = (number << 8) | data[at + place]
    return number


# Stretches longer than this, on average, are sliced; shorter ones are take_rows byte by byte, by places.
_LONG = 100
# Made once: counting is a third of the work.
_COUNT = np.arange(1 << 20)


def take_rows(data: Bytes, starts: Places, lengths: Places) -> Bytes:
    """The bytes of these stretches, one stretch after the other."""
    starts, lengths = starts.ravel(), lengths.ravel()
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    if total > _LONG * len(lengths):
        view = data.data
        stretches = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        return np.frombuffer(bytearray().join([view[start:end] for start, end in stretches]), np.uint8)
    places = np.repeat(starts - (ends - lengths), lengths)
    places += _COUNT[:total] if total <= len(_COUNT) else np.arange(total)
    found: Bytes = data[places]
    return found
