"""A process to be killed: connects, uses the Spark of the process that started it, does one thing
and ends.

    python child.py DSN refresh              refresh every stream table
    python child.py DSN create NAME QUERY    create one
    python child.py DSN drop NAME            drop one
    python child.py DSN alter NAME QUERY     give one another query
    python child.py DSN adopt                adopt the catalog of a restored database
    python child.py DSN move                 move all sources to the WAL, or back where they are there

MILLSTREAM_FAILPOINT says where it shall die, MILLSTREAM_TEST_PASS at which passing of that point
(the first, unless it says otherwise). With PYSPARK_GATEWAY_PORT it drives the Spark that runs there
already, as a driver of its own with a session of its own; starting a Spark for each of some forty
crashes would take ten minutes. Without, it starts one.

It prints its own backend's id, where it dies, and `survived` if it does not.
"""

from __future__ import annotations

import os
import sys
import time

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import millstream
from millstream import Millstream
from millstream.capture.transition import transitions
from millstream.capture.transition.context import TransitionMemory
from millstream.catalog import sources
from millstream.observe import failpoint
from millstream.settings import Settings


def main(dsn: str, verb: str, *arguments: str) -> None:
    spark = attached() if "PYSPARK_GATEWAY_PORT" in os.environ else None
    die_at_pass(int(os.environ.get("MILLSTREAM_TEST_PASS", "1")))
    with millstream.connect(dsn, spark=spark, settings=Settings(auto_replica_identity=True)) as ms:
        print("backend", ms.app.conn.info.backend_pid, flush=True)
        if verb == "create":
            name, query = arguments
            ms.create_stream_table(name, query)
        elif verb == "alter":
            name, query = arguments
            ms.alter_stream_table(name, query=query)
        elif verb == "drop":
            ms.drop_stream_table(arguments[0])
        elif verb == "adopt":
            ms.adopt()
        elif verb == "move":
            move(ms)
        else:
            ms.refresh_all()
    print("survived", flush=True)
    # Not by way of atexit, where PySpark would stop the Spark that is not ours.
    os._exit(0)


def move(ms: Millstream) -> None:
    """Take the steps of all transitions until every source of ours has changed sides, or the time
    is up.
    """
    app = ms.app
    goal = "TRIGGER" if any(source.mode == "WAL" for source in sources.every(app.conn)) else "WAL"
    app.settings = app.settings.model_copy(
        update={"cdc_mode": "trigger" if goal == "TRIGGER" else "auto"}
    )
    deadline = time.monotonic() + 40
    while (
        any(source.mode != goal for source in sources.every(app.conn))
        and time.monotonic() < deadline
    ):
        app.steps = TransitionMemory()
        transitions.advance(app)
        time.sleep(0.02)


def attached() -> SparkSession:
    """A session on the Spark of another process."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # PySpark types it not
    jvm = gateway.jvm
    context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    conf = SparkConf(_jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf)).newSession()


def die_at_pass(number: int) -> None:
    """Let the failpoint pass some times before it kills, and have it say so."""
    kill, passes = os.kill, iter(range(1, number + 1))

    def kill_later(pid: int, signal: int) -> None:
        if next(passes) == number:
            print("killed at", os.environ[failpoint.VARIABLE], number, flush=True)
            kill(pid, signal)

    failpoint.os.kill = kill_later  # type: ignore[attr-defined]  # its own import of os


if __name__ == "__main__":
    main(*sys.argv[1:])
