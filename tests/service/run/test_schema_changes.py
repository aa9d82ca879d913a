"""A service follows DDL as it happens, woken by event triggers; what it does itself does not wake
it.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.service.run.conftest import serving

import millstream
from millstream.bundled.server import Server, embedded
from millstream.testing.waiting import wait_until

pytestmark = pytest.mark.spark

# As servers are by default: where transactions can be prepared, event triggers send nothing.
PLAIN = {"max_prepared_transactions": "0", "fsync": "off"}


@pytest.fixture
def plain_server() -> Iterator[Server]:
    with embedded(settings=PLAIN) as running:
        yield running


def test_a_service_follows_ddl_and_is_not_woken_by_its_own(
    plain_server: Server, spark: SparkSession
) -> None:
    dsn = plain_server.dsn
    with (
        psycopg.connect(dsn, autocommit=True) as writer,
        millstream.connect(dsn, spark=spark) as ms,
    ):
        # A prepared statement fails when the types of what it reads have changed.
        writer.prepare_threshold = None
        writer.execute(
            "CREATE TABLE public.t (id int PRIMARY KEY, v int); INSERT INTO public.t VALUES (1, 1)"
        )
        ms.create_stream_table("public.st", "SELECT id, v FROM public.t", schedule="200ms")

        def shown() -> list[tuple[object, ...]]:
            return writer.execute("SELECT * FROM public.st ORDER BY id").fetchall()

        def status() -> str:
            return ms.app.named("public.st").status

        with serving(dsn, spark):
            writer.execute("ALTER TABLE public.t RENAME v TO w; INSERT INTO public.t VALUES (2, 2)")
            assert wait_until(lambda: shown() == [(1, 1), (2, 2)])
            writer.execute(
                "ALTER TABLE public.t ALTER w TYPE text; INSERT INTO public.t VALUES (3, 'three')"
            )
            assert wait_until(lambda: shown() == [(1, "1"), (2, "2"), (3, "three")])
            writer.execute("ALTER TABLE public.t DROP COLUMN w")
            assert wait_until(lambda: status() == "ERROR")
            # So long that only a notification can end the wait in time.
            writer.execute(
                "UPDATE millstream.stream_tables SET next_try_at = now() + interval '1 day'"
            )
            writer.execute("ALTER TABLE public.t ADD COLUMN w text DEFAULT 'again'")
            assert wait_until(lambda: status() == "ACTIVE" and shown()[0] == (1, "again"))
            writer.execute("LISTEN millstream_wake")
            writer.execute("INSERT INTO public.t VALUES (4, 'four')")
            assert wait_until(lambda: len(shown()) == 4)
            writer.execute("SELECT pg_notify('millstream_wake', 'end')")
            heard = list[str]()
            for one in writer.notifies(timeout=60):
                heard.append(one.payload)
                if one.payload == "end":
                    break
            assert "ddl" not in heard
            assert heard[-1] == "end"
