"""Positions: `snapshot` is which transactions have been seen, `lsn` a position in the WAL. Pure."""
