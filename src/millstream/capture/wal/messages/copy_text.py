"""Build the text for COPY from images. The values are PostgreSQL's own texts, and PostgreSQL parses
them again.

    <newline> xid <tab> action <tab> origin   <tab> value   <tab> value   <tab> \\N

A row consists of byte ranges of the batch's array. Each value needs a tab before it, which
temporarily overwrites the last byte of the value's length field. The texts that begin a row, and
that of NULL, are stored behind the messages. So one operation copies all ranges of a batch, and
values are changed only to escape COPY's special characters.
"""

from __future__ import annotations

import numpy as np

from millstream.capture.wal.messages.decode import NULL, DecodedImages
from millstream.capture.wal.messages.rows import Bytes, Offsets, take_ranges

_TAB, _BACKSLASH = b"\t\\"
_ESCAPES = bytes.maketrans(b"\b\t\n\v\f\r\\", b"btnvfr\\")
_IS_SPECIAL = bytes(byte in b"\b\t\n\v\f\r\\" for byte in range(256))


def copy_text(images: DecodedImages) -> bytes:
    """Return one line for each image."""
    data, trailer = images.rows.data, images.rows.trailer
    is_null = images.lengths == NULL
    before = images.starts[~is_null] - 1
    lent = data[before]
    data[before] = _TAB
    begin = 2 * images.rows.transactions + (images.action == "D")
    starts = np.column_stack(
        [trailer.starts[begin], np.where(is_null, trailer.null, images.starts - 1)]
    )
    lengths = np.column_stack([trailer.lengths[begin], np.where(is_null, 3, images.lengths + 1)])
    text = take_ranges(data, starts, lengths)
    data[before] = lent
    special = np.frombuffer(bytearray(text.tobytes().translate(_IS_SPECIAL)), np.bool_)
    ends = np.cumsum(lengths.ravel()).reshape(lengths.shape)
    # Not to be escaped: the first byte of each range, the tabs before action and origin, the
    # backslash of a NULL.
    special[ends - lengths] = False
    special[ends[:, 0] - 4] = False
    special[ends[:, 0] - 2] = False
    special[ends[:, 1:][is_null] - 2] = False
    return _escaped(text, np.flatnonzero(special))[1:].tobytes() + b"\n"


def _escaped(text: Bytes, places: Offsets) -> Bytes:
    if not len(places):
        return text
    text[places] = np.frombuffer(text[places].tobytes().translate(_ESCAPES), np.uint8)
    return np.insert(text, places, _BACKSLASH)
