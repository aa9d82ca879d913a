"""The text that COPY reads, built from images: PostgreSQL's own text of each value, read by PostgreSQL's own input.

    <newline> xid <tab> action <tab> origin   <tab> value   <tab> value   <tab> \\N

A row is a run of stretches of the batch's array. A value brings its tab along: for the time being it is written over
the byte before the value, the last of its length. What begins a row and what stands for NULL lie behind the messages.
So a batch is one gathering of bytes, and values are touched only to escape what COPY would take for its own.
"""

from __future__ import annotations

import numpy as np

from millstream.capture.wal.messages.decode import NULL, DecodedImages
from millstream.capture.wal.messages.rows import Bytes, Places, take_rows

_TAB, _BACKSLASH = b"\t\\"
_ESCAPES = bytes.maketrans(b"\b\t\n\v\f\r\\", b"btnvfr\\")
_IS_SPECIAL = bytes(byte in b"\b\t\n\v\f\r\\" for byte in range(256))


def copy_text(images: DecodedImages) -> bytes:
    """One line for each image."""
    data, trailer = images.rows.data, images.rows.trailer
    is_null = images.lengths == NULL
    before = images.starts[~is_null] - 1
    lent = data[before]
    data[before] = _TAB
    begin = 2 * images.rows.transactions + (images.action == "D")
    starts = np.column_stack([trailer.starts[begin], np.where(is_null, trailer.null, images.starts - 1)])
    lengths = np.column_stack([trailer.lengths[begin], np.where(is_null, 3, images.lengths + 1)])
    text = take_rows(data, starts, lengths)
    data[before] = lent
    special = np.frombuffer(bytearray(text.tobytes().translate(_IS_SPECIAL)), np.bool_)
    ends = np.cumsum(lengths.ravel()).reshape(lengths.shape)
    # What is ours: the first byte of each stretch, the tabs before action and origin, the backslash of a NULL.
    special[ends - lengths] = False
    special[ends[:, 0] - 4] = False
    special[ends[:, 0] - 2] = False
    special[ends[:, 1:][is_null] - 2] = False
    return _escaped(text, np.flatnonzero(special))[1:].tobytes() + b"\n"


def _escaped(text: Bytes, places: Places) -> Bytes:
    if not len(places):
        return text
    text[places] = np.frombuffer(text[places].tobytes().translate(_ESCAPES), np.uint8)
    return np.insert(text, places, _BACKSLASH)
