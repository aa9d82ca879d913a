"""The example that each command's help ends in, run for real, in the order of a stream table's
life.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from millstream.bundled.server import embedded
from millstream.cli.app import COMMANDS, name_of
from millstream.postgres.connection import connect

ORDERS = """
CREATE TABLE orders (id bigint PRIMARY KEY, region text NOT NULL, amount numeric(12,2) NOT NULL);
INSERT INTO orders VALUES (1, 'north', 10), (2, 'south', 20), (3, 'north', 5);
"""
UPDATE = "UPDATE orders SET region = 'south' WHERE id = 3"

pytestmark = pytest.mark.spark


def shell(command: str, dsn: str) -> subprocess.CompletedProcess[str]:
    """Run a command line as a user would: in a shell, with the program of this environment."""
    program = f"millstream() {{ '{sys.executable}' -m millstream \"$@\"; }}; "
    return subprocess.run(
        ["bash", "-c", program + command], env={**os.environ, "MILLSTREAM_DSN": dsn}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """A server of our own with the table that the examples speak of."""
    with embedded() as server, connect(server.dsn) as conn:
        conn.execute(ORDERS)
        yield server.dsn


# These run until they are told to stop, and have tests of their own.
ENDLESS = ("demo", "run")


# COMMANDS stands in the order of a stream table's life.
@pytest.mark.parametrize(
    "command", [one for one in COMMANDS if name_of(one) not in ENDLESS], ids=name_of
)
def test_the_example_runs(command: ModuleType, dsn: str) -> None:
    if name_of(command) == "refresh":
        with connect(dsn) as conn:
            conn.execute(UPDATE)
    if name_of(command) == "health":
        # Nobody refreshes it every second meanwhile; so late, it would be told.
        with connect(dsn) as conn:
            conn.execute("UPDATE millstream.stream_tables SET schedule = '1h'")
    ended = shell(command.EXAMPLE, dsn)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()
    if name_of(command) == "refresh":
        with connect(dsn) as conn:
            rows = conn.execute("SELECT region, total::text FROM totals ORDER BY region").fetchall()
        assert rows == [("north", "10.00"), ("south", "25.00")]
        assert "DIFFERENTIAL" in ended.stdout


def test_nothing_is_left_after_the_last_example(dsn: str) -> None:
    with connect(dsn) as conn:
        schemas = conn.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname ~ '^millstream'"
        ).fetchall()
        triggers = conn.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = 'orders'::regclass"
        ).fetchall()
    assert schemas == []
    assert triggers == []


def test_the_demo_runs_the_service_alters_a_source_and_proves_its_three_stream_tables() -> None:
    ended = shell("millstream demo --seconds 5 --json", dsn="")
    assert ended.returncode == 0, ended.stderr
    proof = json.loads(ended.stdout)
    assert [one["ok"] for one in proof["verifications"]] == [True, True, True]
    assert proof["traffic"]["committed"] > 0
    assert set(proof["captured"]) == {"customers", "order_lines", "orders", "products"}
    assert set(proof["refreshes"]) == {"open_orders", "sales_by_region", "price_range"}
    assert proof["altered"]["is_followed"]
    assert "SELECT millstream.create_stream_table('sales_by_region', $$" in ended.stderr
