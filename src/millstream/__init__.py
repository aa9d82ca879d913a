"""Millstream keeps SQL views over PostgreSQL tables fresh, incrementally, computing on Apache Spark."""

from __future__ import annotations

from millstream.client import Millstream, connect
from millstream.errors import MillstreamError
from millstream.settings import Settings
from millstream.testing.server import Server, embedded

__version__ = "0.1.0"

__all__ = ["Millstream", "MillstreamError", "Server", "Settings", "connect", "embedded"]
