"""The Python of the quickstart, run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.bundled.server import embedded
from millstream.postgres.connection import connect

QUICKSTART = (Path(__file__).parent.parent / "docs" / "quickstart.md").read_text()

CREATE = """
import millstream
with millstream.connect(dsn) as ms:
    ms.create_stream_table("totals", "SELECT region, sum(amount) AS total FROM orders GROUP BY region")
"""


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in their order."""
    return re.findall(rf"```{language}\n(.*?)```", QUICKSTART, re.DOTALL)


@pytest.mark.spark
def test_the_python_of_the_quickstart_runs_and_proves() -> None:
    with embedded() as server, connect(server.dsn) as conn:
        conn.execute(blocks("sql")[0].encode())
        program = f"dsn = {server.dsn!r}\n{CREATE}\n{blocks('python')[0]}"
        ended = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert ended.returncode == 0, ended.stderr
    report, proof, *table = ended.stdout.splitlines()
    assert report.startswith("NO_DATA 0 ")
    assert proof == "True"
    assert any("north" in line and "15.00" in line for line in table)
