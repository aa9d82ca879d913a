"""A Java that ends, amid a refresh or between two, is noticed, named and started again; a small one
is enough.

Each process here has a Spark of its own, which is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

pytestmark = pytest.mark.spark

CHILD = Path(__file__).with_name("child.py")


def ran(database: str, what: str, **environment: str) -> Any:  # what the child prints
    """Run a part of `child.py` to its end; what it found."""
    given: Mapping[str, str] = {**os.environ, **environment}
    command = [sys.executable, str(CHILD), database, what]
    ended = subprocess.run(
        command, env=given, capture_output=True, text=True, check=False, timeout=500
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture
def orders(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE orders (id int PRIMARY KEY, region int, amount numeric(12,2))")
        conn.execute("INSERT INTO orders SELECT n, n % 7, n FROM generate_series(1, 1000) AS n")
    return database


def test_java_killed_between_refreshes_or_amid_one_is_started_again_and_the_refresh_is_exact(
    orders: str,
) -> None:
    """Every later refresh of the process failed: "Connection refused"."""
    assert ran(orders, "killed") == {
        "between": {"actions": ["DIFFERENTIAL", "DIFFERENTIAL"], "javas": 2},
        "amid": {"actions": ["DIFFERENTIAL", "DIFFERENTIAL"], "javas": 3},
        "at every try": {
            "code": "MS012",
            "retryable": True,
            "signal": True,
            "status": "ACTIVE",
            "failures": 0,
        },
        "then": {"actions": ["DIFFERENTIAL", "DIFFERENTIAL"]},
    }


def test_a_java_that_hangs_amid_a_refresh_is_killed_and_the_refresh_is_exact(orders: str) -> None:
    """Such a refresh never ended, and its graph waited until the service was started again."""
    assert ran(orders, "hangs") == {"actions": ["DIFFERENTIAL", "DIFFERENTIAL"], "javas": 2}


def test_a_given_session_that_has_ended_is_not_replaced_but_named(orders: str) -> None:
    assert ran(orders, "given") == {
        "code": "MS012",
        "message": "the Spark session passed to Millstream has ended",
    }
