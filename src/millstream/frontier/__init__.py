"""Positions, as values. Pure.

snapshot    `Snapshot`: which transactions are visible; `Slice`: what lies between two snapshots
lsn         WAL positions as numbers and as text
"""
