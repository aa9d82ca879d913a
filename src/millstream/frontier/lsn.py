"""Positions in WAL (LSN): integers in the program, PostgreSQL's `16/B374D848` in SQL, logs and
errors.

>>> parse("16/B374D848"), printed(97500059720)
(97500059720, '16/B374D848')
"""

from __future__ import annotations


def parse(text: str) -> int:
    """Read PostgreSQL's text form."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def printed(lsn: int) -> str:
    """Return PostgreSQL's text form."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
