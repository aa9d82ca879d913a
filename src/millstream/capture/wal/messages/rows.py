"""Hold the messages of a batch in one array: a row is an offset into it, and values are not Python
objects.

message, message, ...   zeros   <tab>\\N   <newline>1000<tab>I   <newline>1000<tab>D   ...
                                └─ NULL, and the beginning of each transaction's rows in the text for COPY
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.capture.wal.messages.protocol import HEADER, RelationMessage

Offsets: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_TRUNCATE = b"T"[0]


@dataclass(frozen=True)
class Trailer:
    """The constants behind the messages of a batch, which become part of the text for COPY; see
    `copy_text.py`.
    """

    null: int
    starts: Offsets
    """Offset of the text that begins a row, by transaction and action (I, then D)."""
    lengths: Offsets


@dataclass(frozen=True)
class Rows:
    """Messages of one batch, all with the same layouts, and the transaction of each."""

    data: Bytes
    starts: Offsets
    """Offset behind the letter of each message, and behind its transaction id if it has one."""
    ends: Offsets
    letters: Bytes
    transactions: Offsets
    layouts: Mapping[int, RelationMessage]
    trailer: Trailer

    def at(self, chosen: Offsets) -> Rows:
        """Return some of the rows."""
        return replace(
            self,
            starts=self.starts[chosen],
            ends=self.ends[chosen],
            letters=self.letters[chosen],
            transactions=self.transactions[chosen],
        )

    def relids(self) -> Offsets:
        """Return the relation of each row.

        Not for truncations, which may have several relations.
        """
        return big_endian(self.data, self.starts, 4)

    def truncated(self) -> list[tuple[int, int]]:
        """Return (transaction, relation) of each truncation."""
        found = []
        for row in np.flatnonzero(self.letters == _TRUNCATE):
            relids = bytes(self.data[self.starts[row] + 5 : self.ends[row]])
            found += [
                (int(self.transactions[row]), int(relid)) for relid in np.frombuffer(relids, ">u4")
            ]
        return found

    def changes(self) -> Rows:
        """Return the rows without truncations."""
        chosen = np.flatnonzero(self.letters != _TRUNCATE)
        return self if len(chosen) == len(self.letters) else self.at(chosen)


def lay_out(
    messages: Sequence[bytes],
    relation_at: Offsets,
    transactions: Offsets,
    layouts: Mapping[int, RelationMessage],
    xids: Sequence[int],
) -> Rows:
    """Put messages into one array, followed by the texts that begin the rows of these transactions."""
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    ends = np.cumsum(lengths)
    first = ends - lengths
    begins = [b"\n%d\t%c\tl" % (xid, action) for xid in xids for action in b"ID"]
    # Zeros in between, since `walk` may read some bytes behind the last value.
    data = np.frombuffer(bytearray().join([*messages, bytes(8), b"\t\\N", *begins]), np.uint8)
    null = int(lengths.sum()) + 8
    sizes = np.fromiter(map(len, begins), np.int64, len(begins))
    trailer = Trailer(null, null + 3 + np.cumsum(sizes) - sizes, sizes)
    return Rows(
        data, first + relation_at, ends, data[first + HEADER], transactions, layouts, trailer
    )


def big_endian(data: Bytes, at: Offsets, size: int) -> Offsets:
    """Return the big-endian numbers at these offsets."""
    number = data[at].astype(np.int64)
    for place in range(1, size):
        number = (number << 8) | data[at + place]
    return number


# Ranges longer than this, on average, are sliced; shorter ones are copied byte by byte, by their
# offsets.
_LONG = 100
# Allocated once: counting would be a third of the work.
_COUNT = np.arange(1 << 20)


def take_ranges(data: Bytes, starts: Offsets, lengths: Offsets) -> Bytes:
    """Return the bytes of these ranges, one range after the other."""
    starts, lengths = starts.ravel(), lengths.ravel()
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    if total > _LONG * len(lengths):
        view = data.data
        ranges = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        return np.frombuffer(bytearray().join([view[start:end] for start, end in ranges]), np.uint8)
    places = np.repeat(starts - (ends - lengths), lengths)
    places += _COUNT[:total] if total <= len(_COUNT) else np.arange(total)
    found: Bytes = data[places]
    return found
