"""Tests of transitions use the log of `tests/capture/wal`."""

from __future__ import annotations

from tests.capture.wal.conftest import log, make_log

__all__ = ["log", "make_log"]  # fixtures
