"""Millstream keeps SQL views over PostgreSQL tables fresh, incrementally, computing on Apache
Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.bundled.server import Server, embedded
    from millstream.client import Millstream, connect
    from millstream.errors import MillstreamError
    from millstream.settings import Settings

__version__ = "0.1.0"

__all__ = ["Millstream", "MillstreamError", "Server", "Settings", "connect", "embedded"]

_HOMES = {
    "Millstream": "millstream.client",
    "MillstreamError": "millstream.errors",
    "connect": "millstream.client",
    "Settings": "millstream.settings",
    "Server": "millstream.bundled.server",
    "embedded": "millstream.bundled.server",
}


def __getattr__(name: str) -> object:
    """Imported when first used: `millstream --help` does not wait for Spark's and Arrow's modules."""
    if name not in _HOMES:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
