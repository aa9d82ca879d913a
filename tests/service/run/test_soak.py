"""Faults of every kind under load, for two minutes; `make soak-service` for an hour, or as long as
one likes.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from tests.service.run.soak import Soak

from millstream.bundled.server import embedded

SECONDS = float(os.environ.get("MILLSTREAM_TEST_SERVICE_SECONDS", "60"))
SEED = int(os.environ.get("MILLSTREAM_TEST_SERVICE_SEED", "0")) or random.randrange(1, 1_000_000)


@pytest.mark.timeout(SECONDS + 600)
def test_every_stream_table_is_exact_after_each_fault(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    # What a crash leaves is in the operating system's memory: nothing need reach the disk.
    with embedded(settings={"fsync": "off", "max_connections": "120"}) as server:
        soak = Soak(server, tmp_path, SEED)
        end = time.monotonic() + SECONDS
        try:
            soak.start()
            while time.monotonic() < end:
                soak.fault()
        except BaseException:
            for log in sorted(tmp_path.glob("*.log")):
                print(log.name, *log.read_text(encoding="utf-8").splitlines()[-400:], sep="\n")
            raise
        finally:
            soak.stop()
    print(soak.measured)
    assert soak.measured.faults.total() > 0
    assert soak.writers.done["committed"] > soak.writers.done["rolled back"] > 0
