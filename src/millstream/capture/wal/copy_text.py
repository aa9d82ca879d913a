"""The text that COPY reads, built from images: PostgreSQL's own text of each value, read by PostgreSQL's own input.

    <newline> xid <tab> action   <tab> value   <tab> value   <tab> \\N

A row is a run of stretches of the batch's array. A value brings its tab along: it is written over the byte before it,
the last of its length, which is no longer needed. What begins a row and what stands for NULL lie behind the messages.
So a batch is one gathering of bytes, and values are touched only to escape what COPY would take for its own.
"""

from __future__ import annotations

import numpy as np

from millstream.capture.wal.decode import NULL, Bytes, Images, gathered

_TAB, _BACKSLASH = b"\t\\"
_ESCAPES = np.zeros(256, np.uint8)
for _byte, _letter in zip(b"\b\t\n\v\f\r\\", b"btnvfr\\", strict=True):
    _ESCAPES[_byte] = _letter


def copy_text(images: Images) -> bytes:
    """One line for each image."""
    data, trailer = images.rows.data, images.rows.trailer
    is_null = images.lengths == NULL
    data[images.starts[~is_null] - 1] = _TAB
    begin = 2 * images.rows.transactions + (images.action == "D")
    starts = np.column_stack([trailer.starts[begin], np.where(is_null, trailer.null, images.starts - 1)])
    lengths = np.column_stack([trailer.lengths[begin], np.where(is_null, 3, images.lengths + 1)])
    text = gathered(data, starts, lengths)
    ours = (np.cumsum(lengths.ravel()) - lengths.ravel()).reshape(lengths.shape)
    special = _ESCAPES[text] > 0
    special[ours] = False
    special[ours[:, 1:][is_null] + 1] = False
    special[ours[:, 0] + lengths[:, 0] - 2] = False
    return _escaped(text, special)[1:].tobytes() + b"\n"


def _escaped(text: Bytes, special: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Bytes:
    places = np.flatnonzero(special)
    if not len(places):
        return text
    text[places] = _ESCAPES[text[places]]
    return np.insert(text, places, _BACKSLASH)
